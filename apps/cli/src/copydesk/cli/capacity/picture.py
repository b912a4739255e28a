"""The curve of a certificate as SVG."""

from __future__ import annotations

from copydesk.loadtest.certificate import Certificate
from copydesk.loadtest.chart import Chart, Line, svg


def picture(certificate: Certificate) -> str:
    """Draw latency against concurrency, with the objective and the highest rate that keeps it."""
    points = certificate.curve
    lines = [
        Line("P50", [(point.concurrency, point.p50_ms) for point in points], dots=True),
        Line("P99", [(point.concurrency, point.p99_ms) for point in points], dots=True),
    ]
    pods = "1 pod" if certificate.pods == 1 else f"{certificate.pods} pods"
    chart = Chart(
        f"{certificate.model}: latency in ms, {pods} on {certificate.hardware.name}",
        "requests in flight",
        lines,
        log_y=True,
        level=(certificate.slo_ms, f"objective {certificate.slo_ms:g} ms"),
        moment=(certificate.concurrency, f"{certificate.rate:.4g} requests/s"),
    )
    return svg(chart)
