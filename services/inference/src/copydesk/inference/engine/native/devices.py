"""What computes steps, seen from the compiled engine: as two addresses, of a function and of its self."""

from __future__ import annotations

import ctypes
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from copydesk.inference.engine.native.compiled_types import BEGIN, DEVICE, FINISH
from copydesk.inference.engine.native.layout import Run, StepResult


class Device(Protocol):
    """Both addresses stay valid for as long as this object lives."""

    def device(self) -> tuple[int, int]:
        """Return the address of a `CdDevice` function (csrc/step.hpp), and of what it is given as its self."""
        ...

    def failure(self) -> BaseException | None:
        """Return what went wrong when the function last returned an error, if the device can tell."""
        ...


@runtime_checkable
class OverlappingDevice(Device, Protocol):
    """A device that computes a step while the engine plans the next one (csrc/step.hpp says what it is given)."""

    def overlap(self) -> tuple[int, int]:
        """Return the addresses of a `CdBegin` and of a `CdFinish` function; their self is that of `device`."""
        ...


class Runner(Protocol):
    """What computes steps, seen from Python."""

    def run(self, runs: Sequence[Run]) -> StepResult:
        """Run one step; return what follows each of a run's last `samples` tokens."""
        ...


class CalledDevice(ABC):
    """A device that computes in Python: the engine calls back into the interpreter for each step."""

    def __init__(self) -> None:
        self._error: BaseException | None = None
        self._function = DEVICE(self._step)

    @abstractmethod
    def compute(self, step: Any) -> None:
        """Compute a `CdStep`: fill its `chosen` and `scores`."""

    def device(self) -> tuple[int, int]:
        """The address of a function that calls back into Python; it needs no self."""
        return _address(self._function), 0

    def failure(self) -> BaseException | None:
        """What was raised first."""
        return self._error

    def _step(self, _self: int | None, step: Any) -> int:
        return self._guarded(lambda: self.compute(step.contents))

    def _guarded(self, work: Callable[[], None]) -> int:
        try:
            work()
        except BaseException as error:  # it must not leave a callback
            self._error = self._error or error
            return 1
        return 0


class CalledOverlappingDevice(CalledDevice):
    """An overlapping device in Python.

    `begin` and `finish` are called on the thread that steps. The steps are `CdStep` structures, and stay valid and
    as they are until they are finished; each that was begun is finished, in order, even after an error.
    """

    def __init__(self) -> None:
        super().__init__()
        self._begin = BEGIN(self._begun)
        self._finish = FINISH(self._finished)

    @abstractmethod
    def begin(self, step: Any) -> None:
        """Launch a step. A token -(1 + i) is what sample i of the step that was begun before chooses."""

    @abstractmethod
    def finish(self) -> None:
        """Wait for the first of the steps under way: fill its `chosen` and `scores`."""

    def compute(self, step: Any) -> None:
        """Begin and finish."""
        self.begin(step)
        self.finish()

    def overlap(self) -> tuple[int, int]:
        """The addresses of functions that call back into Python."""
        return _address(self._begin), _address(self._finish)

    def _begun(self, _self: int | None, step: Any) -> int:
        return self._guarded(lambda: self.begin(step.contents))

    def _finished(self, _self: int | None) -> int:
        return self._guarded(self.finish)


class RunnerDevice(CalledDevice):
    """Any runner as a device: in tests, a table."""

    def __init__(self, runner: Runner, vocabulary: int) -> None:
        super().__init__()
        self._runner = runner
        self._vocabulary = vocabulary

    def compute(self, step: Any) -> None:
        """Take the step apart into runs, and put together what the runner finds for each."""
        runs = runs_of(step)
        put(step, runs, self._runner.run(runs), self._vocabulary)


class NullDevice:
    """A device that computes nothing in `seconds` a step: shows what all else costs (csrc/null_device.cpp).

    Before that, each step costs the processor `launch_seconds`.
    """

    def __init__(
        self, library: ctypes.CDLL, *, seconds: float, vocabulary: int, launch_seconds: float = 0.0
    ) -> None:
        library.cd_null_open.restype = ctypes.c_void_p
        library.cd_null_open.argtypes = (ctypes.c_double, ctypes.c_double, ctypes.c_int32)
        self._library = library
        library.cd_null_close.argtypes = (ctypes.c_void_p,)
        self._address: int = library.cd_null_open(seconds, launch_seconds, vocabulary)
        weakref.finalize(self, library.cd_null_close, self._address).atexit = False

    def device(self) -> tuple[int, int]:
        """The addresses of its step function and of itself."""
        return _address(self._library.cd_null_step), self._address

    def failure(self) -> BaseException | None:
        """It does not fail."""
        return None


class OverlappingNullDevice(NullDevice):
    """One whose steps take their time beside the engine, as an accelerator's do."""

    def overlap(self) -> tuple[int, int]:
        """The addresses of its functions."""
        return _address(self._library.cd_null_begin), _address(self._library.cd_null_finish)


def runs_of(step: Any) -> list[Run]:
    """The runs of a `CdStep`, in its order."""
    runs: list[Run] = []
    first = 0
    for run in step.run[: step.runs]:
        tokens = step.token[first : first + run.length]
        runs.append(Run(len(runs), run.slot, run.start, tokens, run.samples, bool(run.scores)))
        first += run.length
    return runs


def put(step: Any, runs: Sequence[Run], result: StepResult, vocabulary: int) -> None:
    """Fill a `CdStep` with what was found for its runs."""
    sample = row = 0
    chosen = np.ctypeslib.as_array(step.chosen, (step.samples,)) if step.samples else None
    scores = np.ctypeslib.as_array(step.scores, (step.scored, vocabulary)) if step.scored else None
    for run in runs:
        if run.scores and scores is not None:
            scores[row : row + run.samples] = result.scores[run.slot]
            row += run.samples
        elif chosen is not None and run.samples:
            chosen[sample : sample + run.samples] = result.tokens[run.slot]
        sample += run.samples


def _address(function: Any) -> int:
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address
