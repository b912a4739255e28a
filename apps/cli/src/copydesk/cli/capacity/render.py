"""A capacity for people: lines while it is looked for, a table at the end."""

from __future__ import annotations

from copydesk.cli.bench.render import table
from copydesk.loadtest.certificate import Certificate
from copydesk.loadtest.search import Measure
from copydesk.loadtest.trial import Trial
from copydesk.loadtest.verdict import Judgement

_HEAD = ("requests/s", "in flight", "P50 ms", "P99 ms")
_BOUNDS = {
    "fleet": "",
    "limit": "No higher rate was tried (--max-rate): the fleet may hold more.",
    "generator": "Higher rates could not be sent in time from here: the fleet may hold more. Try when this "
    "machine has less else to do, from another one, or with more --processes.",
}


def step_line(number: int, step: Measure, seconds: float) -> str:
    """Say what is being tried."""
    senders = f", {step.processes} processes" if step.processes > 1 else ""
    return f"trial {number}: {step.rate:g}/s for {seconds:.0f} s, {step.purpose.value}{senders}"


def trial_line(trial: Trial, judgement: Judgement) -> str:
    """Say what came of it."""
    latency = "no answers" if trial.p50_ms is None else f"P50 {trial.p50_ms:.0f} ms, P99 {trial.p99_ms:.0f} ms"
    line = f"  {judgement.verdict.value}: {latency}, {trial.concurrency:.1f} in flight"
    return f"{line}; {'; '.join(judgement.reasons)}" if judgement.reasons else line


def render(certificate: Certificate) -> str:
    """Return the certificate as a few lines and a table."""
    low, high = certificate.interval
    upper = "?" if high is None else f"{high:.4g}"
    pods = "1 pod" if certificate.pods == 1 else f"{certificate.pods} pods"
    hardware = certificate.hardware
    cores = f", {hardware.cores} cores" if hardware.cores else ""
    quantile = f"P{100.0 - 100.0 * certificate.miss_share:.6g}"
    lines = [
        f"{certificate.rate:.4g} requests/s at {quantile} < {certificate.slo_ms:g} ms, {pods} "
        f"({certificate.rate_per_pod:.4g} a pod; 95 % interval {low:.4g} to {upper})",
        f"{certificate.concurrency:.1f} in flight at that rate ({certificate.concurrency_per_pod:.1f} a pod)",
        *_evidence(certificate),
        f"model      {certificate.model} {certificate.model_digest}",
        f"config     {_config(certificate)} {certificate.config_digest[:12]}",
        f"hardware   {hardware.name}{cores}",
        "",
        table(_HEAD, (_row(certificate, i) for i in range(len(certificate.curve)))),
    ]
    bound = _BOUNDS.get(certificate.bounded_by, "")
    return "\n".join([*lines, "", bound] if bound else lines)


def _evidence(certificate: Certificate) -> list[str]:
    shown = certificate.evidence
    if shown is None:
        return []
    return [
        f"{shown.misses} of {shown.requests} missed it in the trial that confirmed it (95 %: below "
        f"{shown.miss_bound:.2%})",
        f"{shown.faults} of {shown.requests_up_to} failed or were refused up to that rate (95 %: below "
        f"{shown.fault_bound:.3%})",
    ]


def _row(certificate: Certificate, index: int) -> tuple[str, ...]:
    point = certificate.curve[index]
    return f"{point.rate:.2f}", f"{point.concurrency:.1f}", f"{point.p50_ms:.0f}", f"{point.p99_ms:.0f}"


def _config(certificate: Certificate) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(certificate.config.items())) or "not told"
