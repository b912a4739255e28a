"""Why a model cannot be quantised: each error says which file, tensor or pattern, and what to do about it.

What is wrong with the model itself (a file that is cut short, a missing tensor, an unknown architecture) is said
by the engine's own errors, in `engine.native.errors`.
"""

from __future__ import annotations

from pathlib import Path

from copydesk.common.errors import CopydeskError


class QuantisationError(CopydeskError):
    """A model cannot be quantised as asked."""


class PickledWeightsError(QuantisationError):
    """The weights in `directory` are pickled, `name` among them: reading them would run what they say."""

    def __init__(self, directory: Path, name: str) -> None:
        self.directory = directory
        self.name = name
        super().__init__(
            f"{directory} has its weights in {name}, which is pickled and can run any code when it is read: "
            "get the model as safetensors, or convert it where that does no harm"
        )


class AlreadyQuantisedError(QuantisationError):
    """The model in `directory` is quantised, by `method`; twice rounded, it would only be worse."""

    def __init__(self, directory: Path, method: str) -> None:
        self.directory = directory
        self.method = method
        super().__init__(f"{directory} is quantised already ({method}): begin with the original")


class SourceChangedError(QuantisationError):
    """File `name` of the model in `directory` was changed while it was read."""

    def __init__(self, directory: Path, name: str) -> None:
        self.directory = directory
        self.name = name
        super().__init__(f"{directory}: {name} was changed while it was read: begin again when it is complete")


class NonFiniteWeightError(QuantisationError):
    """Tensor `name` has `count` values that are infinite or no number: the model is damaged."""

    def __init__(self, name: str, count: int) -> None:
        self.name = name
        self.count = count
        super().__init__(f"tensor {name} has {count} values that are infinite or no number: the model is damaged")


class UnmatchedPatternError(QuantisationError):
    """Nothing has a name that `pattern` matches; `near` are names like it."""

    def __init__(self, pattern: str, near: tuple[str, ...]) -> None:
        self.pattern = pattern
        self.near = near
        advice = f"; near it: {', '.join(near)}" if near else ""
        super().__init__(f"--keep {pattern}: no module has such a name{advice}")


class InvalidPatternError(QuantisationError):
    """`pattern` is no regular expression, for `reason`."""

    def __init__(self, pattern: str, reason: str) -> None:
        self.pattern = pattern
        self.reason = reason
        super().__init__(f"--keep {pattern}: not a regular expression: {reason}")


class NothingToQuantiseError(QuantisationError):
    """Every module would stay as it is: `reasons` are why, each once."""

    def __init__(self, reasons: tuple[str, ...]) -> None:
        self.reasons = reasons
        super().__init__(f"nothing is left to quantise: {'; '.join(reasons)}")


class OutputExistsError(QuantisationError):
    """There is something at `path` already; nothing is ever overwritten."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(f"{path} exists: remove it, or give another place with --out")


class OutputInsideSourceError(QuantisationError):
    """`path` lies within the model that is read."""

    def __init__(self, path: Path, source: Path) -> None:
        self.path = path
        self.source = source
        super().__init__(f"{path} lies within {source}: give a place outside of it with --out")


class OutputBusyError(QuantisationError):
    """Another process is writing to the same place."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(f"{path} is being written by another process: wait for it, or give another place")


class OutputUnwritableError(QuantisationError):
    """`path` cannot be written, for `reason`."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path} cannot be written: {reason}")


class OutputFullError(QuantisationError):
    """The disk is full or would be; `needed` and `free` are in bytes."""

    def __init__(self, path: Path, needed: int, free: int) -> None:
        self.path = path
        self.needed = needed
        self.free = free
        super().__init__(
            f"{path} needs {_mebibytes(needed)} MiB, {free >> 20} MiB are free there: free some space, or give "
            "a place on another disk with --out"
        )


def _mebibytes(size: int) -> int:
    return -(-size >> 20)
