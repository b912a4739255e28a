"""Sentences corrected in order by an engine of this process: the pod's own corrector and engine, without a pod.

For measuring a model, and for files: nothing is refused, there is no deadline, and the answers come in the order
of the sentences. For one thread.
"""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from copydesk.common.rpc.frames import Priority
from copydesk.common.tasks import CorrectedSentence, Outcome
from copydesk.inference.correction import CorrectionSetupError, Corrector, EncodedSentence, render_apart
from copydesk.inference.engine import Engine, GeneratedTokens, PromptTooLongError
from copydesk.inference.pod.engine_loading import load_engine
from copydesk.inference.pod.failure import CannotStartError
from copydesk.inference.settings import InferenceSettings

MOST_AHEAD = 4_096
"""Sentences that may be known beyond the first unanswered one: room for it to be slow, and a bound on memory."""


@dataclass(slots=True)
class _Place:
    """A sentence's place in the order, and its answer once there is one."""

    answer: CorrectedSentence | None = None


class OfflineCorrector:
    """Corrects sentences with a model; `digest` names its weights.

    `add` takes sentences while there is `room`, `step` works on those that were added, and `pop` gives the answers
    in their order. `correct` does all three.
    """

    def __init__(self, engine: Engine, corrector: Corrector, digest: str = "") -> None:
        self.digest = digest
        self.context = corrector.context
        self._engine = engine
        self._corrector = corrector
        self._places: deque[_Place] = deque()
        self._asked = 0
        self._most_asked = engine.capacity + min(engine.capacity, engine.queue)

    @classmethod
    def open(cls, settings: InferenceSettings) -> OfflineCorrector:
        """Load the model that the settings name, as a pod with them would.

        Raises:
            CannotStartError: A setting, or the model, is not usable.
        """
        threads = str(settings.thread_count())
        for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):  # libraries read them as they load
            os.environ.setdefault(variable, threads)
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        engine, digest = load_engine(settings)
        try:
            corrector = Corrector.load(settings.model_dir, context=settings.context, render=render_apart)
        except (CorrectionSetupError, OSError) as error:
            raise CannotStartError("MODEL_DIR", str(error)) from error
        return cls(engine, corrector, digest)

    @property
    def room(self) -> bool:
        """Whether another sentence may be added now."""
        return self._asked < self._most_asked and len(self._places) < MOST_AHEAD

    @property
    def busy(self) -> bool:
        """Whether there is anything for `step` to do."""
        return self._asked > 0

    def add(self, text: str) -> None:
        """Take a sentence: one line, stripped, not empty. What does not fit the model has its answer at once."""
        place = _Place()
        self._places.append(place)
        sentence = self._corrector.encode(text)
        if not sentence.fits:
            place.answer = self._corrector.refuse(sentence)
            return
        answered = partial(self._answered, place, sentence)
        try:
            self._engine.submit(
                sentence.request(), deadline=math.inf, priority=Priority.INTERACTIVE, on_done=answered
            )
        except PromptTooLongError:
            place.answer = sentence.keep(Outcome.TOO_LONG)
            return
        self._asked += 1

    def step(self) -> None:
        """Advance everything that was added by a step of the model."""
        self._engine.step(time.monotonic())

    def pop(self) -> CorrectedSentence | None:
        """Return the answer to the oldest sentence that has not been returned; None while it is not known."""
        if not self._places or self._places[0].answer is None:
            return None
        return self._places.popleft().answer

    def correct(self, texts: Iterable[str]) -> Iterator[CorrectedSentence]:
        """Yield the correction of each text, in their order, as soon as it and all before it are known."""
        for text in texts:
            while not self.room:
                yield from self._ready()
                if self.busy:
                    self.step()
            self.add(text)
            yield from self._ready()
        while self.busy:
            self.step()
            yield from self._ready()
        yield from self._ready()

    def _ready(self) -> Iterator[CorrectedSentence]:
        while (answer := self.pop()) is not None:
            yield answer

    def _answered(self, place: _Place, sentence: EncodedSentence, answer: GeneratedTokens) -> None:
        self._asked -= 1
        place.answer = self._corrector.decode(sentence, answer)
