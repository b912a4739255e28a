"""From samples to the figures of a run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from copydesk.loadtest.sample import Sample

MESSAGES_KEPT = 3
"""Different messages a kind of failure shows: enough to see what is wrong, few enough to read."""
MESSAGE_CHARACTERS = 200


class Quantiles(msgspec.Struct, frozen=True, kw_only=True):
    """Quantiles of a duration, in milliseconds, each an observed value (nearest rank)."""

    p50: float
    p90: float
    p99: float
    max: float


class Failures(msgspec.Struct, frozen=True, kw_only=True):
    """Failures of one kind, and the first different messages among them."""

    kind: str
    count: int
    messages: tuple[str, ...]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a run.

    `latency_ms` is that of the requests that went well, from the moment each was due; read it beside `failures`,
    for a service that refuses quickly keeps it low. `lateness_ms` is how late the generator sent; where it is
    not small beside the latency, the generator was the bottleneck. `offered_rate` is what was planned, in
    requests a second (none in a closed loop), `achieved_rate` good answers a second between the first moment
    due and the last answer, `duration_s` that time.
    """

    planned: int
    sent: int
    ok: int
    failures: tuple[Failures, ...]
    offered_rate: float | None
    achieved_rate: float
    duration_s: float
    latency_ms: Quantiles | None
    lateness_ms: Quantiles | None

    @property
    def failed(self) -> int:
        """How many of the requests sent failed."""
        return self.sent - self.ok

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain dicts, lists and numbers, ready for JSON."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


def summarise(samples: Sequence[Sample], *, planned: int, offered_rate: float | None) -> Report:
    """Sum up `samples`, of a run in which `planned` requests were to be sent."""
    good = [sample for sample in samples if sample.failure is None]
    duration = 0.0
    if samples:
        duration = max(sample.finished for sample in samples) - min(sample.planned for sample in samples)
    return Report(
        planned=planned,
        sent=len(samples),
        ok=len(good),
        failures=_failures(samples),
        offered_rate=offered_rate,
        achieved_rate=len(good) / duration if duration > 0 else 0.0,
        duration_s=duration,
        latency_ms=_quantiles([sample.latency for sample in good]),
        lateness_ms=_quantiles([sample.lateness for sample in samples]),
    )


def nearest_rank(ascending: Sequence[float], quantile: float) -> float:
    """Return the smallest value that at least the share `quantile` of the values do not exceed."""
    return ascending[max(0, math.ceil(quantile * len(ascending)) - 1)]


def _quantiles(seconds: list[float]) -> Quantiles | None:
    if not seconds:
        return None
    ascending = sorted(value * 1000.0 for value in seconds)
    p50, p90, p99 = (nearest_rank(ascending, quantile) for quantile in (0.5, 0.9, 0.99))
    return Quantiles(p50=p50, p90=p90, p99=p99, max=ascending[-1])


def _failures(samples: Sequence[Sample]) -> tuple[Failures, ...]:
    """Group failures by kind, the most frequent first."""
    messages: dict[str, list[str]] = {}
    for sample in samples:
        if sample.failure is not None:
            messages.setdefault(sample.failure.kind, []).append(sample.failure.message[:MESSAGE_CHARACTERS])
    kinds = sorted(messages.items(), key=lambda entry: (-len(entry[1]), entry[0]))
    return tuple(
        Failures(kind=kind, count=len(all_), messages=tuple(dict.fromkeys(all_))[:MESSAGES_KEPT])
        for kind, all_ in kinds
    )
