"""The candidate answers requests, and the baseline whatever the candidate does not.

There is no queue before the candidate's pods: what finds no room there goes to the baseline at once, as does what
two of its pods, or the only one, have failed. What takes half of the time that it has is asked of the baseline as
well. So a candidate that is broken costs its share of requests some time, and nobody an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import msgspec

from copydesk.common.rpc import Fault, Priority, Response, Status
from copydesk.common.tasks import CorrectedSentence, GeneratedText
from copydesk.common.tracing import tracing
from copydesk.gateway.attempt import Attempt
from copydesk.gateway.dispatch import (
    NO_FAULT,
    SENTENCE,
    Delivery,
    Dispatcher,
    OnChunk,
    OnDone,
    settle_fault,
)
from copydesk.gateway.faults import ApiError, PodRefusalError
from copydesk.gateway.fleet import Fleet
from copydesk.gateway.pod import Pod
from copydesk.gateway.rollout.versions import CandidateCount
from copydesk.gateway.submits import Handle
from copydesk.routing import Ending, choose

if TYPE_CHECKING:
    import asyncio

    from copydesk.gateway.demand import Demand

TRIES = 2
"""Pods of the candidate that are asked before the baseline is."""

LATE = 0.5
"""The part of its time after which a request is asked of the baseline as well: that needs time, too."""

LONGEST_ANSWER, LONGER = 1024, 16
"""Bytes of an answer to a sentence, at the most: so many, and as many times more than were asked. A correction is
about as long as its sentence, and to find the edits of what is not would hold up everybody else."""

_UNREADABLE = Fault("unreadable", "its answer is none")
_decode_corrected = msgspec.msgpack.Decoder(CorrectedSentence).decode
_decode_written = msgspec.msgpack.Decoder(GeneratedText).decode


class CandidatePods:
    """The pods that the fleet has to spare, as one version; `digest` is which."""

    def __init__(self, fleet: Fleet, random: Callable[[], float]) -> None:
        self._fleet = fleet
        self._random = random

    @property
    def digest(self) -> str:
        """The weights that they run."""
        return self._fleet.withheld

    @property
    def usable(self) -> list[Pod]:
        """Those that can take work and are not ejected."""
        health = self._fleet.health
        return [pod for pod in self._fleet.spare if not health.ejected(pod.id)]

    def pick(self, now: float, room: float, excluded: Collection[str] = ()) -> Pod | None:
        """Choose one that has less than `room` times as much as it can run at once; None if there is none."""
        pods = [pod for pod in self.usable if pod.ledger.outstanding(now) < room * pod.ledger.capacity]
        return choose(pods, now=now, random=self._random, excluded=excluded)


class CandidateDispatcher:
    """Has the candidate's pods answer: keeps the promises of `Dispatcher`, to which it hands on what they cannot.

    `fallbacks` are the requests that it has handed on, by why.
    """

    def __init__(self, baseline: Dispatcher, pods: CandidatePods, count: CandidateCount) -> None:
        self.baseline = baseline
        self.fleet = pods
        self.loop: asyncio.AbstractEventLoop = baseline.loop
        self.count = count
        self.fallbacks = dict.fromkeys(("no_pod", "no_room", "failed", "silent", "late", "refused"), 0)

    @property
    def demand(self) -> Demand:
        """Where the dispatcher counts: what the candidate answers is demand like any other."""
        return self.baseline.demand

    def submit(
        self,
        payload: bytes,
        deadline: float,
        on_done: OnDone,
        *,
        priority: Priority = Priority.INTERACTIVE,
        on_chunk: OnChunk | None = None,
    ) -> Handle:
        """Start one request, as `Dispatcher.submit`; what is streamed goes to the baseline: it has no retries."""
        now = self.loop.time()
        if on_chunk is not None or deadline <= now:
            return self.baseline.submit(payload, deadline, on_done, priority=priority, on_chunk=on_chunk)
        pod = self.fleet.pick(now, self.baseline.fleet.balancing.overcommit)
        if pod is None:
            lacking = self.fleet.usable
            self.fallbacks["no_room" if lacking else "no_pod"] += 1
            self.count.refused += bool(lacking)
            return self.baseline.submit(payload, deadline, on_done, priority=priority)
        self.baseline.budget.request(now)
        return CandidateDispatch(self, payload, deadline, on_done, priority, pod, now)


class CandidateDispatch:
    """One request at the candidate's pods, and after that at the baseline's."""

    __slots__ = (
        "_arrived",
        "_attempt",
        "_deadline",
        "_dispatcher",
        "_done",
        "_fallback",
        "_last",
        "_on_done",
        "_payload",
        "_priority",
        "_timer",
        "_tried",
    )

    def __init__(
        self,
        dispatcher: CandidateDispatcher,
        payload: bytes,
        deadline: float,
        on_done: OnDone,
        priority: Priority,
        pod: Pod,
        now: float,
    ) -> None:
        self._dispatcher = dispatcher
        self._payload = payload
        self._deadline = deadline
        self._on_done = on_done
        self._priority = priority
        self._arrived = now
        self._tried: tuple[str, ...] = ()
        self._done = False
        self._fallback: Handle | None = None
        self._last: ApiError | None = None
        self._attempt: Attempt | None = self._send(pod, now)
        self._timer = dispatcher.loop.call_at(now + LATE * (deadline - now), self._on_late)

    def cancel(self) -> None:
        """Give it up, wherever it is."""
        self._done = True
        self._timer.cancel()
        if self._attempt is not None:
            attempt, self._attempt = self._attempt, None
            attempt.cancel(self._dispatcher.loop.time())
        if self._fallback is not None:
            self._fallback.cancel()

    def on_reply(self, attempt: Attempt, response: Response) -> None:
        """The pod has answered, or failed."""
        dispatcher = self._dispatcher
        now = dispatcher.loop.time()
        self._attempt = None
        baseline = dispatcher.baseline
        baseline.metrics.sentence(response.status)
        if response.status is not Status.OK:
            error = settle_fault(attempt, response, response.fault or NO_FAULT, baseline.fleet, now)
            self._on_error(error, now)
            return
        if not _is_answer(self._payload, response.payload):
            failed = msgspec.structs.replace(response, status=Status.INTERNAL)
            self._on_error(settle_fault(attempt, failed, _UNREADABLE, baseline.fleet, now), now)
            return
        attempt.pod.hear(response.load, now)
        attempt.close(Ending.ANSWERED, now)
        if self._done:
            return
        self.cancel()
        dispatcher.count.latency.observe(now - self._arrived)
        baseline.demand.answered(now - self._arrived, now - attempt.started_at)
        self._on_done(Delivery(response.payload, attempt.digest))

    def on_part(self, attempt: Attempt, part: msgspec.Raw) -> None:
        """Nothing was asked for in parts."""

    def on_silence(self, attempt: Attempt) -> None:
        """The pod hangs: nobody shall wait for it."""
        if attempt.open and attempt is self._attempt:
            now = self._dispatcher.loop.time()
            self._attempt = None
            attempt.cancel(now)
            self._go_on("silent", now)

    def _send(self, pod: Pod, now: float) -> Attempt:
        self._tried += (pod.id,)
        return Attempt(
            self,
            pod,
            self._payload,
            at_pods=self._dispatcher.demand.at_pods,
            deadline=self._deadline,
            now=now,
            timed=self._payload.startswith(SENTENCE),
            priority=self._priority,
            parts=False,
            trace=tracing.here,
        )

    def _on_error(self, error: ApiError, now: float) -> None:
        if self._done:
            return
        if isinstance(error, PodRefusalError) and self._fallback is None:
            self._fall_back("refused", now, self._judged)
        else:
            self._go_on("no_room" if error.shed else "failed", now)

    def _go_on(self, reason: str, now: float) -> None:
        """Ask another pod of the candidate, or the baseline, unless that has been asked already."""
        dispatcher = self._dispatcher
        if self._fallback is not None:
            dispatcher.count.failures += 1
            if self._last is not None:
                self._end(self._last)
            return
        other = dispatcher.fleet.pick(now, dispatcher.baseline.fleet.balancing.overcommit, self._tried)
        may_retry = len(self._tried) < TRIES and self._deadline > now
        if other is not None and may_retry and dispatcher.baseline.budget.try_spend(now):
            self._attempt = self._send(other, now)
            return
        if reason == "no_room":
            dispatcher.count.refused += 1
        else:
            dispatcher.count.failures += 1
        self._fall_back(reason, now, self._end)

    def _on_late(self) -> None:
        """Ask the baseline as well, while there is time for an answer; whoever is first has it."""
        if not self._done and self._fallback is None:
            self._fall_back("late", self._dispatcher.loop.time(), self._overtaken)

    def _fall_back(self, reason: str, now: float, on_done: OnDone) -> None:
        dispatcher = self._dispatcher
        dispatcher.fallbacks[reason] += 1
        dispatcher.baseline.budget.overdraw(now)
        self._fallback = dispatcher.baseline.submit(
            self._payload, self._deadline, on_done, priority=self._priority
        )

    def _overtaken(self, outcome: Delivery | ApiError) -> None:
        """The baseline has come to an end that was asked later: only an answer is worth more than waiting on."""
        if self._attempt is None:
            self._end(outcome)
        elif isinstance(outcome, Delivery):
            self._dispatcher.count.failures += 1
            self._end(outcome)
        else:
            self._last = outcome

    def _judged(self, outcome: Delivery | ApiError) -> None:
        """What one version refuses and the other answers was not the client's mistake."""
        if isinstance(outcome, Delivery):
            self._dispatcher.count.failures += 1
        self._end(outcome)

    def _end(self, outcome: Delivery | ApiError) -> None:
        self._fallback = None
        self.cancel()
        self._on_done(outcome)


def _is_answer(asked: bytes, answer: msgspec.Raw) -> bool:
    """Whether a pod's answer is one to what it was asked."""
    sentence = asked.startswith(SENTENCE)
    if sentence and len(answer) > LONGEST_ANSWER + LONGER * len(asked):
        return False
    try:
        _decode_corrected(answer) if sentence else _decode_written(answer)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return True
