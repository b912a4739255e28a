"""One trial: what a fleet did with a rate of requests, in the figures by which it is judged."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from copydesk.loadtest.clusters import design_effect
from copydesk.loadtest.generator import UNFINISHED
from copydesk.loadtest.report import nearest_rank
from copydesk.loadtest.sample import Sample

SHED = ("http_429", "http_503")
"""Kinds of failure by which a gateway refuses work that it has no room for."""

BUCKETS = 40
"""In how many pieces the number in flight is looked at: enough for a trend, each long enough to hold arrivals."""
_LOOKS_A_BUCKET = 8
_COMMON = 0.95
"""The quantile of latency above which requests count as slow for `design_effect` where few miss the objective.

How many of them a queue delays together depends little on the latency that is asked for, if it is a high one.
"""


class Window(NamedTuple):
    """The part of a run that counts, in seconds from its start."""

    begin: float
    end: float

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.end - self.begin


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """A trial at `rate` requests a second, in figures of the requests due in its window, `seconds` long.

    `length` is how many times as long as a plain trial it was meant to be, `processes` how many sent the
    requests. Of `arrivals` (due), `completed` were answered well, `slow` of them later than the objective,
    `shed` refused for want of room, and `errors` failed otherwise or had no answer at the end. `sent_rate` is
    what was really sent. Latency counts from when a request was due and is that of the good answers;
    `late_p99_ms` is how late requests were sent. `concurrency` is the mean number in flight, `in_flight` that of
    each of `BUCKETS` pieces of the window. `design_effect` is how many slow requests come together (see
    `copydesk.loadtest.clusters`).

    A trial that could not pass any more was `stopped` early. Its figures are those of the time up to which the
    fate of every request was known; `slow` are then also those which had no answer and had missed the objective.
    """

    rate: float
    length: int
    processes: int
    seconds: float
    arrivals: int
    completed: int
    slow: int
    shed: int
    errors: int
    sent_rate: float
    late_p99_ms: float
    concurrency: float
    in_flight: tuple[float, ...]
    p50_ms: float | None
    p99_ms: float | None
    max_ms: float | None
    failures: dict[str, int] = {}
    design_effect: float = 1.0
    stopped: bool = False

    @property
    def misses(self) -> int:
        """How many were not answered well within the objective."""
        return self.slow + self.shed + self.errors


def weigh(
    samples: Sequence[Sample],
    window: Window,
    *,
    rate: float,
    slo_ms: float,
    length: int,
    processes: int,
    until: float | None = None,
) -> Trial:
    """Sum up the `samples` of a run at `rate`, in seconds from its start, over `window`.

    `until` is the second up to which it counts if it was stopped early.
    """
    if until is not None:
        window = Window(window.begin, min(window.end, until))
    due = [sample for sample in samples if window.begin <= sample.planned < window.end]
    good = sorted(1000.0 * sample.latency for sample in due if sample.failure is None)
    failures = Counter(sample.failure.kind for sample in due if sample.failure is not None)
    pending = failures.pop(UNFINISHED, 0) if until is not None else 0
    shed = sum(failures[kind] for kind in SHED)
    late = sorted(1000.0 * sample.lateness for sample in due)
    sent = sum(window.begin <= sample.sent < window.end for sample in samples)
    p50, p99 = (nearest_rank(good, quantile) if good else None for quantile in (0.5, 0.99))
    return Trial(
        rate=rate,
        length=length,
        processes=processes,
        seconds=window.seconds,
        arrivals=len(due),
        completed=len(good),
        slow=len(good) - bisect_right(good, slo_ms) + pending,
        shed=shed,
        errors=failures.total() - shed,
        sent_rate=sent / window.seconds,
        late_p99_ms=nearest_rank(late, 0.99) if late else 0.0,
        concurrency=_mean_in_flight(samples, window),
        in_flight=in_flight(samples, window, BUCKETS),
        p50_ms=p50,
        p99_ms=p99,
        max_ms=good[-1] if good else None,
        failures=dict(failures.most_common()),
        design_effect=_clustering(due, slo_ms),
        stopped=until is not None,
    )


def _clustering(due: Sequence[Sample], slo_ms: float) -> float:
    latencies = [math.inf if sample.failure is not None else 1000.0 * sample.latency for sample in due]
    if not latencies:
        return 1.0
    bound = min(slo_ms, nearest_rank(sorted(latencies), _COMMON))
    return design_effect([latency > bound for latency in latencies])


def in_flight(samples: Sequence[Sample], window: Window, buckets: int) -> tuple[float, ...]:
    """Return the mean number of requests in flight in each of `buckets` equal pieces of `window`.

    A request is in flight from when it was due, sent or not. Each piece is looked at several times.
    """
    begun = sorted(sample.planned for sample in samples)
    ended = sorted(sample.finished for sample in samples)
    step = window.seconds / (buckets * _LOOKS_A_BUCKET)
    moments = [window.begin + (look + 0.5) * step for look in range(buckets * _LOOKS_A_BUCKET)]
    counts = [bisect_right(begun, moment) - bisect_right(ended, moment) for moment in moments]
    pieces = (counts[i : i + _LOOKS_A_BUCKET] for i in range(0, len(counts), _LOOKS_A_BUCKET))
    return tuple(sum(piece) / _LOOKS_A_BUCKET for piece in pieces)


def _mean_in_flight(samples: Sequence[Sample], window: Window) -> float:
    begin, end = window
    return sum(max(0.0, min(one.finished, end) - max(one.planned, begin)) for one in samples) / window.seconds
