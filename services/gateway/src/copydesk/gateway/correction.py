"""From texts to corrected texts: cut into sentences, have them corrected side by side, put them together.

Nothing here knows of HTTP: a request comes in as texts and goes out by callback, so that any front can drive it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec

from copydesk.common.rpc import Priority
from copydesk.common.tasks import CorrectedSentence, CorrectSentence, Outcome
from copydesk.common.telemetry import get_logger
from copydesk.common.tracing import tracing
from copydesk.gateway import faults
from copydesk.gateway.dispatch import Delivery
from copydesk.gateway.faults import ApiError
from copydesk.gateway.submits import Handle, Submits
from copydesk.text import Edit, Segment, apply, correct_segments, segments

NOTHING_TO_CORRECT = "nothing_to_correct"

SEGMENTS_A_TURN = 200
"""Sentences cut in one turn of the event loop, some milliseconds' work: a text of 10,000 one-letter lines takes a
tenth of a second, for which nobody else should have to wait."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(CorrectedSentence).decode
_log = get_logger(__name__)


class Skipped(msgspec.Struct, frozen=True):
    """A part of the input, in code points, that stays as it was, and why."""

    start: int
    end: int
    reason: str


class CorrectedText(msgspec.Struct, frozen=True):
    """One text: `apply(source, edits) == corrected`."""

    corrected: str
    edits: list[Edit]
    skipped: list[Skipped]


class Correction(msgspec.Struct, frozen=True):
    """The end of a request: its texts in order, the weights that were used, and what it cost."""

    texts: list[CorrectedText]
    digest: str
    prompt_tokens: int
    completion_tokens: int
    sentences: int


@dataclass(slots=True)
class _Text:
    """One text underway. Edits are made as answers come, so that no one turn of the loop has to make them all."""

    source: str
    max_characters: int
    segments: list[Segment] = field(default_factory=list)
    edits: dict[int, list[Edit]] = field(default_factory=dict)
    skipped: dict[int, str] = field(default_factory=dict)

    def cut(self) -> Iterator[tuple[_Text, int]]:
        """Cut off one segment after the other; yield this text and the index of the segment."""
        for index, found in enumerate(segments(self.source, max_characters=self.max_characters)):
            self.segments.append(found)
            if not found.correctable:
                too_long = len(found.text) > self.max_characters
                self.skipped[index] = Outcome.TOO_LONG.value if too_long else NOTHING_TO_CORRECT
            yield self, index

    def take(self, index: int, answer: CorrectedSentence) -> None:
        if answer.outcome is Outcome.CORRECTED:
            self.edits[index] = correct_segments(self.source, [self.segments[index]], [answer.text])
        else:
            self.skipped[index] = answer.outcome.value

    def result(self) -> CorrectedText:
        edits = [edit for _, found in sorted(self.edits.items()) for edit in found]
        skipped = [
            Skipped(self.segments[index].start, self.segments[index].end, reason)
            for index, reason in sorted(self.skipped.items())
        ]
        return CorrectedText(apply(self.source, edits), edits, skipped)


class Corrector:
    """Corrects texts with the fleet.

    `concurrency` is the most sentences of one request in flight; `max_characters` is where a sentence is cut.
    """

    def __init__(self, dispatcher: Submits, *, concurrency: int, max_characters: int) -> None:
        self.dispatcher = dispatcher
        self.concurrency = concurrency
        self.max_characters = max_characters

    def submit(
        self,
        texts: Sequence[str],
        deadline: float,
        on_done: Callable[[Correction | ApiError], None],
        *,
        priority: Priority = Priority.INTERACTIVE,
    ) -> CorrectionRun:
        """Start to correct `texts`; `deadline` is in the event loop's time.

        `on_done` is called exactly once and never from within this call; after `cancel` of the run it is not.
        """
        run = CorrectionRun(
            self, [_Text(text, self.max_characters) for text in texts], deadline, on_done, priority
        )
        run.start()
        return run


class CorrectionRun:
    """One request underway. The first sentence that fails ends it, and takes the others along."""

    def __init__(
        self,
        corrector: Corrector,
        texts: list[_Text],
        deadline: float,
        on_done: Callable[[Correction | ApiError], None],
        priority: Priority,
    ) -> None:
        self._corrector = corrector
        self._texts = texts
        self._deadline = deadline
        self._on_done = on_done
        self._priority = priority
        self._uncut = itertools.chain.from_iterable(text.cut() for text in texts)
        self._all_cut = False
        self._jobs: list[tuple[_Text, int]] = []
        self._next = 0
        self._underway: dict[int, Handle] = {}
        self._done = False
        self._digest = ""
        self._prompt_tokens = 0
        self._completion_tokens = 0
        self._trace = tracing.here

    def start(self) -> None:
        """Cut and send the first sentences; the rest follows in later turns of the loop."""
        self._cut()

    def cancel(self) -> None:
        """Give the request up, and every sentence of it."""
        self._done = True
        self._drop()

    def _cut(self) -> None:
        if self._done:
            return
        loop = asyncio.get_running_loop()
        try:
            found = list(itertools.islice(self._uncut, SEGMENTS_A_TURN))
        except Exception:
            _log.exception("text_not_cut")
            loop.call_soon(self._finish, faults.unexpected())
            return
        self._jobs += [(text, index) for text, index in found if text.segments[index].correctable]
        self._all_cut = len(found) < SEGMENTS_A_TURN
        self._fill()
        if not self._all_cut:
            loop.call_soon(self._cut)
        elif not self._underway:
            loop.call_soon(self._complete)

    def _fill(self) -> None:
        if not self._trace:
            self._send()
            return
        with tracing.within(self._trace):
            self._send()

    def _send(self) -> None:
        while len(self._underway) < self._corrector.concurrency and self._next < len(self._jobs):
            job, self._next = self._next, self._next + 1
            text, index = self._jobs[job]
            payload = _encode(CorrectSentence(text.segments[index].text))
            on_done = partial(self._on_sentence, job)
            self._underway[job] = self._corrector.dispatcher.submit(
                payload, self._deadline, on_done, priority=self._priority
            )

    def _on_sentence(self, job: int, outcome: Delivery | ApiError) -> None:
        del self._underway[job]
        if isinstance(outcome, ApiError):
            return self._finish(outcome)
        try:
            self._take(job, _decode(outcome.payload), outcome.digest)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            _log.error("pod_answer_undecodable", error=str(error))
            return self._finish(faults.inference_failed("its answer does not decode"))
        except Exception:
            _log.exception("answer_not_placed")
            return self._finish(faults.unexpected())
        self._fill()
        if self._all_cut and not self._underway:
            self._complete()
        return None

    def _take(self, job: int, answer: CorrectedSentence, digest: str) -> None:
        text, index = self._jobs[job]
        text.take(index, answer)
        self._digest = self._digest or digest
        self._prompt_tokens += answer.prompt_tokens
        self._completion_tokens += answer.completion_tokens

    def _complete(self) -> None:
        try:
            outcome: Correction | ApiError = self._result()
        except Exception:
            _log.exception("correction_not_assembled")
            outcome = faults.unexpected()
        self._finish(outcome)

    def _finish(self, outcome: Correction | ApiError) -> None:
        if self._done:
            return
        self._done = True
        if isinstance(outcome, ApiError):
            undone = len(self._underway) + len(self._jobs) - self._next
            self._corrector.dispatcher.demand.taken_along(outcome, undone)
        self._drop()
        self._on_done(outcome)

    def _drop(self) -> None:
        underway, self._underway = self._underway, {}
        for dispatch in underway.values():
            dispatch.cancel()

    def _result(self) -> Correction:
        return Correction(
            [text.result() for text in self._texts],
            self._digest or self._corrector.dispatcher.fleet.digest,
            self._prompt_tokens,
            self._completion_tokens,
            len(self._jobs),
        )
