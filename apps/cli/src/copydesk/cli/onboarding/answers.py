"""Answers of a model that are remembered, so that a search that was killed does not ask for them again.

They are kept by the digest of the weights, the arithmetic, processor and version of this command, as lines of JSON
that are only ever added; a line that a kill has cut short is left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from copydesk.cli.onboarding.ledger import LedgerError

if TYPE_CHECKING:
    from copydesk.evaluation import Answer, Subject


class RememberedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer to a sentence, and what became of it (see `copydesk.evaluation.Answer`)."""

    source: str
    text: str
    outcome: str


class RememberingSubject:
    """A model that is loaded only when it is asked something new."""

    def __init__(self, name: str, facts: dict[str, str], path: Path, load: Callable[[], Subject]) -> None:
        """Read what is remembered in `path`."""
        self.name = name
        self.facts = facts
        self._path = path
        self._load = load
        self._model: Subject | None = None
        self._known = _read(path)

    @property
    def known(self) -> int:
        """How many answers are remembered."""
        return len(self._known)

    def correct(self, texts: Sequence[str]) -> list[Answer]:
        """Answer from memory what is there, and have the model correct the rest.

        Raises:
            LedgerError: The answers cannot be kept.
        """
        missing = [text for text in dict.fromkeys(texts) if text not in self._known]
        if missing:
            if self._model is None:
                self._model = self._load()
            fresh = [
                RememberedAnswer(source=text, text=answer.text, outcome=str(answer.outcome))
                for text, answer in zip(missing, self._model.correct(missing), strict=True)
            ]
            _append(self._path, fresh)
            self._known |= {answer.source: answer for answer in fresh}
        return [self._known[text] for text in texts]

    def forget_model(self) -> None:
        """Let go of the model, and keep its answers."""
        self._model = None


def answers_path(folder: Path, digest: str, dtype: str, circumstances: str) -> Path:
    """Where the answers of a model in an arithmetic, on a processor by a version of the engine, are kept."""
    where = hashlib.sha256(f"{digest}\n{dtype}\n{circumstances}\n".encode()).hexdigest()[:16]
    return folder / f"{digest[:12]}-{dtype}-{where}.jsonl"


def _read(path: Path) -> dict[str, RememberedAnswer]:
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise LedgerError(path, f"cannot be read: {error.strerror or error}") from error
    known = {}
    for line in lines:
        try:
            answer = msgspec.json.decode(line, type=RememberedAnswer)
        except (msgspec.DecodeError, ValueError, RecursionError):  # cut short, or the empty end
            continue
        known[answer.source] = answer
    return known


def _append(path: Path, answers: Sequence[RememberedAnswer]) -> None:
    """Add lines, beginning with a break: what was cut short before them shall not spoil the first."""
    content = b"\n" + b"".join(msgspec.json.encode(answer) + b"\n" for answer in answers)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(content)
    except OSError as error:
        raise LedgerError(path, f"cannot be written: {error.strerror or error}") from error
