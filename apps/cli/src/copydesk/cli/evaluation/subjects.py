"""The two kinds of models that can be evaluated: a directory in this process, and a fleet behind its gateway."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from copydesk.cli.api import Api, ApiError, FleetUnreachableError, Timed
from copydesk.cli.commands.correct import ask
from copydesk.cli.crew import Crew
from copydesk.common.errors import CopydeskError

if TYPE_CHECKING:
    from copydesk.common.tasks import CorrectedSentence
    from copydesk.inference.offline import OfflineCorrector

SIDE_BY_SIDE = 16
"""Requests that a fleet is asked at a time: enough to fill the pods of a machine."""
PAUSES_S = (0.5, 1.0, 2.0)
"""Before a sentence whose connection was lost is asked for again: one of thousands is no reason to begin anew."""
_CORRECTED = "corrected"
_DIGEST_SHOWN = 12
"""Characters of a digest: enough to tell models apart."""


class ModelLoadError(CopydeskError):
    """A model directory cannot be evaluated: `directory`, and why."""

    exit_code = 2

    def __init__(self, directory: Path, reason: str) -> None:
        self.directory = directory
        self.reason = reason
        super().__init__(reason if str(directory) in reason else f"{directory}: {reason}")


class LocalModel:
    """A model directory, with the engine, the prompt and the limits of a pod, in this process."""

    def __init__(self, name: str, model: OfflineCorrector, facts: dict[str, str]) -> None:
        self.name = name
        self.facts = facts
        self._model = model

    @classmethod
    def open(cls, directory: Path, *, name: str = "", dtype: str = "", threads: int | None = None) -> LocalModel:
        """Load the model; `dtype` "" and `threads` None leave these to the settings of pods.

        It is called `name` in the result, or by its directory.

        Raises:
            ModelLoadError: The directory holds no model that can be served, or not with these settings.
        """
        from copydesk.common.settings import load_settings
        from copydesk.inference.offline import OfflineCorrector
        from copydesk.inference.pod.failure import CannotStartError
        from copydesk.inference.settings import InferenceSettings

        chosen: dict[str, object] = {"model_dir": directory.absolute()}
        chosen |= {"dtype": dtype} if dtype else {}
        chosen |= {"threads": threads} if threads else {}
        settings = load_settings(InferenceSettings, warn=False, **chosen)
        try:
            model = OfflineCorrector.open(settings)
        except CannotStartError as error:
            reason = error.reason if error.setting == "MODEL_DIR" else str(error)
            raise ModelLoadError(directory, reason) from error
        facts = {"digest": model.digest[:_DIGEST_SHOWN], "dtype": settings.dtype.value}
        return cls(name or str(directory), model, facts)

    def correct(self, texts: Sequence[str]) -> list[CorrectedSentence]:
        """Correct sentences side by side."""
        return list(self._model.correct(texts))


@dataclass(frozen=True, slots=True)
class FleetAnswer:
    """What a fleet made of a sentence; `outcome` is why a part of it came back as it was, if one did."""

    text: str
    outcome: str


class RemoteModel:
    """The model that a fleet serves, through gateway, balancing and pods."""

    def __init__(self, url: str, sleep: Callable[[float], None] = time.sleep) -> None:
        """Connect.

        Raises:
            FleetUnreachableError: Nobody is there.
            ApiError: It does not want to talk.
        """
        self.name = url
        self._api = Api(url)
        self._sleep = sleep
        self._crew = Crew(SIDE_BY_SIDE)
        fleet = self._api.fleet()
        self.facts = {"model": fleet.model, "digest": fleet.model_digest[:_DIGEST_SHOWN]}

    def correct(self, texts: Sequence[str]) -> list[FleetAnswer]:
        """Correct sentences, several at a time; a fleet that is busy or drops a connection is asked again.

        Raises:
            FleetUnreachableError: It went away.
            ApiError: It refuses a sentence, or is busy for minutes.
        """
        return [_answer(timed) for timed in self._crew.map(self._ask, texts)]

    def _ask(self, text: str) -> Timed:
        for pause in PAUSES_S:
            try:
                return ask(self._api, text, self._sleep, _ignore)
            except FleetUnreachableError:
                self._sleep(pause)
        return ask(self._api, text, self._sleep, _ignore)

    def close(self) -> None:
        """Let go of connections and threads."""
        self._crew.shutdown()
        self._api.close()


def is_url(text: str) -> bool:
    """Say whether this is the address of a fleet rather than a directory."""
    return urlsplit(text).scheme in ("http", "https")


def _answer(timed: Timed) -> FleetAnswer:
    skipped = timed.correction.skipped
    return FleetAnswer(timed.correction.corrected, skipped[0].reason if skipped else _CORRECTED)


def _ignore(_: ApiError) -> None:
    """A busy fleet is asked again without a word: what counts here is the answer."""
