"""A report for people."""

from __future__ import annotations

from copydesk.loadtest.report import Quantiles, Report


def render(report: Report) -> str:
    """Return `report` as a few aligned lines."""
    offered = "as fast as answered" if report.offered_rate is None else f"{report.offered_rate:.1f}/s offered"
    rows = [
        ("requests", f"{report.sent} sent of {report.planned}, {report.ok} ok, {report.failed} failed"),
        ("rate", f"{report.achieved_rate:.1f}/s ok, {offered}, {report.duration_s:.1f} s"),
        ("latency", _quantiles(report.latency_ms)),
        ("lateness", _quantiles(report.lateness_ms)),
    ]
    for failure in report.failures:
        messages = " | ".join(" ".join(message.split()) for message in failure.messages)
        rows.append((failure.kind, f"{failure.count}: {messages}"))
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def _quantiles(quantiles: Quantiles | None) -> str:
    if quantiles is None:
        return "none"
    shown = (("P50", quantiles.p50), ("P90", quantiles.p90), ("P99", quantiles.p99), ("max", quantiles.max))
    return "  ".join(f"{name} {value:.1f}" for name, value in shown) + " ms"
