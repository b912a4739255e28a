"""What a fleet did under a load, second by second and in sum."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

import msgspec

from copydesk.loadtest.report import Failures, nearest_rank, summarise
from copydesk.loadtest.sample import Sample
from copydesk.loadtest.trial import SHED, Window, in_flight

MOST_MOMENTS = 240
"""Of a report: more cannot be told apart in a picture."""


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Quantiles in milliseconds, each an observed value, of the time from when a request was due."""

    p50: float
    p90: float
    p99: float
    p999: float
    max: float


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """The requests that were due in the piece of time from second `at` on.

    `offered`, `good` (answered within the objective), `late` (answered after it) and `failed` are counts,
    `in_flight` is the mean number on the way in that time, answered or not. Latencies are those of the answers.
    """

    at: float
    offered: int
    good: int
    late: int
    failed: int
    in_flight: float
    p50_ms: float | None
    p99_ms: float | None
    max_ms: float | None


class LoadReport(msgspec.Struct, frozen=True, kw_only=True):
    """A run. Rates are in requests a second, over the `seconds` in which requests were due.

    `goodput` counts the answers within `slo_ms`, `good_share` is their part of all requests. `stall_s` is the
    longest time without any answer while requests were on the way. `late_p99_ms` is how late the generator sent:
    the report is to be believed where that is small beside the latencies.
    """

    shape: str
    seconds: float
    planned: int
    ok: int
    shed: int
    errors: int
    offered_rate: float
    goodput: float
    good_share: float
    slo_ms: float
    latency_ms: Latency | None
    stall_s: float
    late_p99_ms: float
    processes: int
    failures: tuple[Failures, ...]
    moments: tuple[Moment, ...]


def report_load(
    samples: Sequence[Sample], *, shape: str, seconds: float, slo_ms: float, processes: int
) -> LoadReport:
    """Sum up `samples`, moments in seconds from the start, of a load that was `seconds` long."""
    plain = summarise(samples, planned=len(samples), offered_rate=None)
    good = sorted(1000.0 * sample.latency for sample in samples if sample.failure is None)
    late = sorted(1000.0 * sample.lateness for sample in samples)
    within = bisect_right(good, slo_ms)
    shed = sum(one.count for one in plain.failures if one.kind in SHED)
    return LoadReport(
        shape=shape,
        seconds=seconds,
        planned=len(samples),
        ok=len(good),
        shed=shed,
        errors=len(samples) - len(good) - shed,
        offered_rate=len(samples) / seconds,
        goodput=within / seconds,
        good_share=within / len(samples) if samples else 0.0,
        slo_ms=slo_ms,
        latency_ms=_latency(good),
        stall_s=longest_stall(samples),
        late_p99_ms=nearest_rank(late, 0.99) if late else 0.0,
        processes=processes,
        failures=plain.failures,
        moments=moments(samples, seconds, slo_ms),
    )


def moments(samples: Sequence[Sample], seconds: float, slo_ms: float) -> tuple[Moment, ...]:
    """Cut a run into pieces: of a quarter of a second, or longer where there would be too many."""
    count = max(1, min(MOST_MOMENTS, math.ceil(seconds * 4.0)))
    step = seconds / count
    pieces: list[list[Sample]] = [[] for _ in range(count)]
    for sample in samples:
        pieces[min(count - 1, int(sample.planned / step))].append(sample)
    flying = in_flight(samples, Window(0.0, seconds), count)
    return tuple(_moment(i * step, piece, flying[i], slo_ms) for i, piece in enumerate(pieces))


def longest_stall(samples: Sequence[Sample]) -> float:
    """Return the longest time, in seconds, in which requests were on the way and none was answered."""
    if not samples:
        return 0.0
    # At one moment, what begins comes before what ends: an answer at once has been on the way.
    changes = sorted([(one.planned, 0) for one in samples] + [(one.finished, 1) for one in samples])
    waited_from, flying, longest = changes[0][0], 0, 0.0
    for moment, ends in changes:
        if ends:
            longest = max(longest, moment - waited_from)
            waited_from = moment
        elif flying == 0:
            waited_from = moment
        flying += -1 if ends else 1
    return longest


def _moment(at: float, samples: Sequence[Sample], flying: float, slo_ms: float) -> Moment:
    good = sorted(1000.0 * sample.latency for sample in samples if sample.failure is None)
    within = bisect_right(good, slo_ms)
    p50, p99 = (nearest_rank(good, quantile) if good else None for quantile in (0.5, 0.99))
    return Moment(
        at=at,
        offered=len(samples),
        good=within,
        late=len(good) - within,
        failed=len(samples) - len(good),
        in_flight=flying,
        p50_ms=p50,
        p99_ms=p99,
        max_ms=good[-1] if good else None,
    )


def _latency(ascending: Sequence[float]) -> Latency | None:
    if not ascending:
        return None
    p50, p90, p99, p999 = (nearest_rank(ascending, quantile) for quantile in (0.5, 0.9, 0.99, 0.999))
    return Latency(p50=p50, p90=p90, p99=p99, p999=p999, max=ascending[-1])
