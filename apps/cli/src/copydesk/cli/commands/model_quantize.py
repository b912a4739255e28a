"""`copydesk model quantize`: a model's linear maps in 8 bits, and a report of what that costs."""

from __future__ import annotations

import contextlib
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import msgspec
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from copydesk.cli import terminal
from copydesk.cli.quantisation.render import render
from copydesk.common.errors import CopydeskError
from copydesk.inference.correction.errors import CorrectionSetupError
from copydesk.inference.quantisation.conversion import quantise_directory
from copydesk.inference.quantisation.plan import PrecisionPlan
from copydesk.inference.quantisation.report import QuantisationReport
from copydesk.inference.quantisation.scheme import Scheme

REFUSED = 2
TERMINATED = 128 + signal.SIGTERM
_ESTIMATE_SECONDS = 300
"""What the time left is guessed from: passes over the texts differ much in length."""


@dataclass(frozen=True, slots=True)
class QuantizeRequest:
    """What was asked for on the command line."""

    directory: Path
    out: Path
    scheme: str
    keep: tuple[str, ...]
    per_tensor: bool
    measure: bool
    as_json: bool


class Quantised(msgspec.Struct, frozen=True):
    """What `--json` prints: where the result is, and the report."""

    directory: str
    report: QuantisationReport


class _TerminatedError(BaseException):
    """SIGTERM, on its way through whatever has to be cleaned up."""


def quantize(request: QuantizeRequest) -> int:
    """Quantise, and show what came of it; returns the exit code."""
    plan = PrecisionPlan(Scheme(request.scheme), request.per_tensor, request.keep)
    try:
        with _terminable(), _progress() as progress:
            report = quantise_directory(request.directory, request.out, plan, progress, measure=request.measure)
    except CorrectionSetupError as error:
        terminal.say_error(str(error), "or quantise it without a report (--no-report)")
        return REFUSED
    except CopydeskError as error:
        terminal.say_error(str(error))
        return REFUSED
    except _TerminatedError:
        return TERMINATED
    if request.as_json:
        terminal.write_line(msgspec.json.encode(Quantised(str(request.out), report)))
    else:
        shown = f"{render(request.out, report)}\n\nnext: {_next(request)}"
        terminal.stdout().print(shown, markup=False, soft_wrap=True)
    return 0


def _next(request: QuantizeRequest) -> str:
    """Say how to find out what the result loses as a corrector."""
    out, original = shlex.quote(str(request.out)), shlex.quote(str(request.directory))
    return f"{terminal.own_name()} model evaluate {out} --against {original}"


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Have SIGTERM clean up as Ctrl-C does, or what was half written would stay."""

    def leave(_number: int, _frame: FrameType | None) -> None:
        raise _TerminatedError

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str, float], None]]:
    """A bar on stderr with the time it took and about what it will; where nobody watches, nothing."""
    columns = (
        TextColumn("{task.description:<22}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns,
        console=terminal.stderr(),
        transient=True,
        disable=not sys.stderr.isatty(),
        speed_estimate_period=_ESTIMATE_SECONDS,
    ) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda stage, share: bar.update(task, description=stage, completed=share)
