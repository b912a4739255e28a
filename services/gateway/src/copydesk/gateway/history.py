"""The last minutes of the gateway, for people: what it answered, how fast, and what the autoscaler said.

Bounded: one line a second, for a quarter of an hour. Time is passed in. Programs that watch a fleet read
`/metrics` instead, and remember as long as they like.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from copydesk.common.messages import ScaleDecision
from copydesk.gateway.decisions import Decisions
from copydesk.gateway.schemas import FleetHistory
from copydesk.routing import Quantiles

KEPT_SECONDS = 900

FADE = 0.9
"""Each second what was seen counts a tenth less, so that quantiles are those of about the last ten: of the few
requests of a single second, the 99th percentile would be no more than the slowest."""

SILENT_SECONDS = 10.0
"""After so long without an answer there is no latency to show."""

WORK = frozenset({"/v1/correct", "/v1/completions", "/v1/chat/completions", "/v2/check"})
"""The routes whose requests are work for the fleet."""


class Work:
    """Requests for the fleet's work since the process began, by what became of them.

    `refused` are answers with 429, `failed` those with a 5xx, `requests` all. `latency` is that of recent
    successes alone, in milliseconds: a refusal takes no time, and would make an overloaded fleet look fast.
    """

    __slots__ = ("answered", "failed", "latency", "refused", "requests")

    def __init__(self) -> None:
        self.requests = 0
        self.answered = 0
        self.refused = 0
        self.failed = 0
        self.latency = Quantiles()

    def count(self, code: int, seconds: float) -> None:
        """Count one request by its HTTP status and the seconds that it took."""
        self.requests += 1
        if code < 300:
            self.answered += 1
            self.latency.observe(seconds * 1000)
        elif code == 429:
            self.refused += 1
        elif code >= 500:
            self.failed += 1


@dataclass(frozen=True, slots=True)
class _Totals:
    requests: int = 0
    answered: int = 0
    refused: int = 0
    failed: int = 0

    @classmethod
    def of(cls, work: Work) -> _Totals:
        return cls(work.requests, work.answered, work.refused, work.failed)


@dataclass(frozen=True, slots=True)
class _Second:
    """What one second brought; `at_ms` is its end."""

    at_ms: int
    requests_per_s: float
    refused_per_s: float
    failed_per_s: float
    in_flight: int
    p50_ms: float | None
    p99_ms: float | None


class History:
    """What `/v1/fleet/history` tells.

    `started_at` is in Unix seconds, `now`, here and below, in those of a clock that nobody sets: when the other
    one is set, no point of a chart moves.
    """

    def __init__(self, *, started_at: float, now: float) -> None:
        self._started_ms = int(started_at * 1000)
        self._started = self._recorded = self._answered = now
        self._totals = _Totals()
        self._seconds: deque[_Second] = deque(maxlen=KEPT_SECONDS)
        self._decisions = Decisions()
        self._scale_heard_ms: int | None = None

    def record(self, work: Work, in_flight: int, now: float) -> None:
        """Add what came since the last call, which should be about a second ago; `in_flight` is at this moment."""
        elapsed = now - self._recorded
        if elapsed <= 0:
            return
        before, self._totals, self._recorded = self._totals, _Totals.of(work), now
        if self._totals.answered > before.answered:
            self._answered = now
        elif now - self._answered >= SILENT_SECONDS:
            work.latency.fade(0.0)
        self._seconds.append(
            _Second(
                at_ms=self._unix_ms(now),
                requests_per_s=round((self._totals.requests - before.requests) / elapsed, 3),
                refused_per_s=round((self._totals.refused - before.refused) / elapsed, 3),
                failed_per_s=round((self._totals.failed - before.failed) / elapsed, 3),
                in_flight=in_flight,
                p50_ms=_rounded(work.latency.quantile(0.5, least=0.01)),
                p99_ms=_rounded(work.latency.quantile(0.99, least=0.01)),
            )
        )
        work.latency.fade(FADE)

    def hear(self, decision: ScaleDecision, now: float) -> None:
        """Take in a decision of the autoscaler."""
        if self._decisions.hear(decision):
            self._scale_heard_ms = self._unix_ms(now)

    def body(self, since_ms: int) -> FleetHistory:
        """Return the seconds that ended after `since_ms`, and the last decisions worth reading."""
        seconds = list(self._after(since_ms))
        return FleetHistory(
            started_ms=self._started_ms,
            at_ms=[second.at_ms for second in seconds],
            requests_per_s=[second.requests_per_s for second in seconds],
            refused_per_s=[second.refused_per_s for second in seconds],
            failed_per_s=[second.failed_per_s for second in seconds],
            in_flight=[second.in_flight for second in seconds],
            p50_ms=[second.p50_ms for second in seconds],
            p99_ms=[second.p99_ms for second in seconds],
            scale_decisions=self._decisions.list(),
            scale_heard_ms=self._scale_heard_ms,
        )

    def _unix_ms(self, now: float) -> int:
        return self._started_ms + int((now - self._started) * 1000)

    def _after(self, since_ms: int) -> Iterator[_Second]:
        return (second for second in self._seconds if second.at_ms > since_ms)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
