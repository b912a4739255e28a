"""Copies of live requests to the candidate, whose answers nobody gets.

A copy is made once the live answer has gone out, as batch work, to a pod with room to spare, and a bounded number
at once; what does not fit is dropped. It counts in the ledger of the pod that it occupies, and nowhere else:
neither as demand nor as an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from copydesk.common.rpc import Priority, Response, Status
from copydesk.common.tasks import CorrectedSentence, CorrectSentence, GeneratedText
from copydesk.common.telemetry import get_logger
from copydesk.gateway.attempt import Attempt
from copydesk.gateway.correction import Correction, CorrectionRun, Corrector
from copydesk.gateway.demand import Demand, Occupancy
from copydesk.gateway.dispatch import (
    NO_FAULT,
    SENTENCE,
    Delivery,
    OnChunk,
    OnDone,
    settle_fault,
)
from copydesk.gateway.faults import ApiError
from copydesk.gateway.fleet import Fleet
from copydesk.gateway.pod import Pod
from copydesk.gateway.rollout.candidate import CandidatePods
from copydesk.gateway.rollout.examples import Examples
from copydesk.gateway.rollout.versions import Comparison
from copydesk.gateway.submits import Handle, Submits, Weighed
from copydesk.routing import Ending

AFTER_SECONDS = 0.02
"""How long after the live answer a copy sets out: the answer is on the wire by then."""

TIMEOUT_SECONDS = 30.0
"""For how long a copy may take. It is batch work, and waits behind everybody else's."""

MOST_AT_ONCE = 64
"""Copies underway and about to be, of one gateway; each holds a sentence and its answer."""

_decode_asked = msgspec.msgpack.Decoder(CorrectSentence).decode
_decode_corrected = msgspec.msgpack.Decoder(CorrectedSentence).decode
_decode_written = msgspec.msgpack.Decoder(GeneratedText).decode
_log = get_logger(__name__)


class Pair(NamedTuple):
    """A request, and what a client got for it."""

    payload: bytes
    answer: msgspec.Raw


class Copies:
    """Asks the candidate again what the baseline has answered, and compares.

    `underway` are at pods, as `at_pods` counts them, apart from all demand.
    """

    def __init__(
        self, fleet: Fleet, pods: CandidatePods, loop: asyncio.AbstractEventLoop, examples: Examples
    ) -> None:
        self.comparison = Comparison()
        self.examples = examples
        self.underway = 0
        self.fleet = fleet
        self.loop = loop
        self.at_pods = Occupancy(loop.time())
        self._pods = pods

    def begin(self, rollout: str) -> None:
        """Count anew, for another rollout."""
        self.comparison = Comparison()
        self.examples.begin(rollout)

    def send(self, pair: Pair, comparison: Comparison, now: float) -> None:
        """Ask the candidate, if it has room to spare; only one that runs nothing else than it could has."""
        pod = self._pods.pick(now, 1.0)
        if pod is None or self.underway >= MOST_AT_ONCE or comparison is not self.comparison:
            comparison.dropped += 1
            return
        self.underway += 1
        _Copy(self, pair, comparison, pod, now)

    def ended(self, pair: Pair, comparison: Comparison, answer: msgspec.Raw) -> None:
        """Compare the candidate's answer with the one that a client got."""
        try:
            texts = _texts(pair, answer)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            comparison.failed += 1
            return
        comparison.compare(*texts)
        if pair.payload.startswith(SENTENCE) and comparison is self.comparison:
            self.examples.keep(*texts)


class _Copy:
    """One copy at a pod; there is no second try."""

    __slots__ = ("_attempt", "_comparison", "_copies", "_pair")

    def __init__(self, copies: Copies, pair: Pair, comparison: Comparison, pod: Pod, now: float) -> None:
        self._copies = copies
        self._pair = pair
        self._comparison = comparison
        self._attempt = Attempt(
            self,
            pod,
            pair.payload,
            at_pods=copies.at_pods,
            deadline=now + TIMEOUT_SECONDS,
            now=now,
            timed=False,
            priority=Priority.BATCH,
            parts=False,
        )

    def on_reply(self, attempt: Attempt, response: Response) -> None:
        """The pod has answered, or failed."""
        copies = self._copies
        copies.underway -= 1
        now = copies.loop.time()
        if response.status is Status.OK:
            attempt.pod.hear(response.load, now)
            attempt.close(Ending.ANSWERED, now)
            copies.ended(self._pair, self._comparison, response.payload)
            return
        settle_fault(attempt, response, response.fault or NO_FAULT, copies.fleet, now)
        if response.status is Status.DEADLINE_EXCEEDED:
            self._comparison.timeouts += 1
        elif response.status is Status.OVERLOADED:
            self._comparison.dropped += 1
        else:
            self._comparison.failed += 1

    def on_part(self, attempt: Attempt, part: msgspec.Raw) -> None:
        """Nothing was asked for in parts."""

    def on_silence(self, attempt: Attempt) -> None:
        """The pod hangs."""
        if attempt.open:
            copies = self._copies
            copies.underway -= 1
            attempt.cancel(copies.loop.time())
            self._comparison.timeouts += 1


class CopyingDispatcher:
    """Has a request answered as before, and keeps what is to be copied.

    Each answer sets out as it comes, unless it is `held`: then when `release` is called.
    """

    def __init__(self, live: Submits, copies: Copies, *, held: bool) -> None:
        self._live = live
        self._copies = copies
        self._comparison = copies.comparison
        self._held = held
        self._pairs: list[Pair] = []
        self.loop = live.loop

    @property
    def fleet(self) -> Weighed:
        """Who answers."""
        return self._live.fleet

    @property
    def demand(self) -> Demand:
        """Where requests are counted."""
        return self._live.demand

    def submit(
        self,
        payload: bytes,
        deadline: float,
        on_done: OnDone,
        *,
        priority: Priority = Priority.INTERACTIVE,
        on_chunk: OnChunk | None = None,
    ) -> Handle:
        """Start one request, as whatever answers it would."""

        def done(outcome: Delivery | ApiError) -> None:
            if isinstance(outcome, Delivery):
                self._pairs.append(Pair(payload, outcome.payload))
            on_done(outcome)
            if self._pairs and not self._held:
                self.release()

        return self._live.submit(payload, deadline, done, priority=priority, on_chunk=on_chunk)

    def release(self) -> None:
        """Send the copies, in a moment."""
        pairs, self._pairs = self._pairs, []
        self.loop.call_later(AFTER_SECONDS, self._send, pairs)

    def _send(self, pairs: list[Pair]) -> None:
        now = self.loop.time()
        for pair in pairs:
            self._copies.send(pair, self._comparison, now)


class CopyingCorrector(Corrector):
    """Corrects one request's texts, and has its sentences copied when all of it has been answered."""

    def __init__(self, live: Corrector, copies: Copies) -> None:
        self._copying = CopyingDispatcher(live.dispatcher, copies, held=True)
        super().__init__(self._copying, concurrency=live.concurrency, max_characters=live.max_characters)

    def submit(
        self,
        texts: Sequence[str],
        deadline: float,
        on_done: Callable[[Correction | ApiError], None],
        *,
        priority: Priority = Priority.INTERACTIVE,
    ) -> CorrectionRun:
        """Start to correct, as any corrector."""

        def done(outcome: Correction | ApiError) -> None:
            on_done(outcome)
            self._copying.release()

        return super().submit(texts, deadline, done, priority=priority)


def _texts(pair: Pair, answer: msgspec.Raw) -> tuple[str, str, str]:
    """Return source, the live answer and the candidate's, as texts."""
    if pair.payload.startswith(SENTENCE):
        source = _decode_asked(pair.payload).text
        return source, _decode_corrected(pair.answer).text, _decode_corrected(answer).text
    return "", _decode_written(pair.answer).text, _decode_written(answer).text
