"""What has been done already, as a file: so that a run which was killed goes on where it was.

Each step is kept with a digest of all that it depends on. A step whose inputs have changed is done again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from copydesk.common.errors import CopydeskError
from copydesk.common.whole_file import replace_file

VERSION = 1
T = TypeVar("T")


class LedgerError(CopydeskError):
    """What has been done cannot be kept in `path`, or read from it, for `reason`.

    `exit_code` is 2 where the file is none of this command's, else 1: a disk that is full is nobody's input.
    """

    def __init__(self, path: Path, reason: str, exit_code: int = 1) -> None:
        self.path = path
        self.reason = reason
        self.exit_code = exit_code
        super().__init__(f"{path}: {reason}")


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A step that is done: the digest of its inputs, what came of it, and how many seconds it took."""

    inputs: str
    result: msgspec.Raw
    seconds: float


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """The file."""

    version: int = VERSION
    steps: dict[str, Step] = {}


class Ledger:
    """The steps that are done, in `path`; each change is written at once, in one piece."""

    def __init__(self, path: Path) -> None:
        """Read what is there, if anything.

        Raises:
            LedgerError: It cannot be read, or is no such file.
        """
        self.path = path
        self._steps = _read(path)

    def find(self, name: str, inputs: str, type_: type[T]) -> tuple[T, float] | None:
        """Return the result of a step with these inputs and the seconds it took; None if it is to be done."""
        step = self._steps.get(name)
        if step is None or step.inputs != inputs:
            return None
        try:
            return msgspec.json.decode(step.result, type=type_), step.seconds
        except (msgspec.DecodeError, ValueError, RecursionError):
            return None

    def keep(self, name: str, inputs: str, result: Any, seconds: float) -> None:
        """Keep the result of a step.

        Raises:
            LedgerError: It cannot be written.
        """
        raw = msgspec.Raw(msgspec.json.encode(result))
        self._write({**self._steps, name: Step(inputs=inputs, result=raw, seconds=seconds)})

    def forget(self, beginnings: Iterable[str]) -> None:
        """Have the steps whose names begin with one of these words done again; raises `LedgerError`."""
        words = set(beginnings)
        left = {name: step for name, step in self._steps.items() if name.split(" ")[0] not in words}
        if left.keys() != self._steps.keys():
            self._write(left)

    def _write(self, steps: dict[str, Step]) -> None:
        content = msgspec.json.format(msgspec.json.encode(Content(steps=steps)), indent=1)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self.path, content + b"\n")
        except OSError as error:
            raise LedgerError(self.path, f"cannot be written: {error.strerror or error}") from error
        self._steps = steps


def digest_of(*inputs: Any) -> str:
    """Return a digest of whatever a step depends on; the order of keys does not matter."""
    return hashlib.sha256(msgspec.json.encode(inputs, order="sorted")).hexdigest()


def _read(path: Path) -> dict[str, Step]:
    try:
        content = msgspec.json.decode(path.read_bytes(), type=Content)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise LedgerError(path, f"cannot be read: {error.strerror or error}") from error
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        reason = f"is none of this command's files ({error}); remove it to begin anew"
        raise LedgerError(path, reason, exit_code=2) from error
    return content.steps if content.version == VERSION else {}
