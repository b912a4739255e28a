"""`copydesk model prepare`: the default model, made once and kept in the user's cache.

The work needs numpy and some memory; `up` has it done by a process of its own, so that the supervisor, which lives
as long as the fleet, stays small and single-threaded.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from copydesk.cli import terminal
from copydesk.common.errors import CopydeskError


class PreparationError(CopydeskError):
    """The default model cannot be prepared; the message says why and what to do."""

    exit_code = 2
    hint = ""


class Step(msgspec.Struct, frozen=True, tag_field="event", tag="progress"):
    """What is being done, and how much of the whole is done, 0 to 1."""

    stage: str
    share: float


class Prepared(msgspec.Struct, frozen=True, tag_field="event", tag="prepared"):
    """The model is there: its directory, and the digest that names its weights."""

    directory: str
    digest: str


class Refused(msgspec.Struct, frozen=True, tag_field="event", tag="failed"):
    """It cannot be prepared."""

    message: str


@dataclass(frozen=True, slots=True)
class PreparedModel:
    """Where the model is."""

    directory: Path
    digest: str


def prepare(*, as_json: bool) -> int:
    """Prepare the default model, and print where it is; returns the exit code.

    The directory alone goes to stdout, so that a shell can take it; the digest goes to stderr.
    """
    if as_json:
        return _prepare_here()
    try:
        model = prepare_shown()
    except PreparationError as error:
        terminal.say_error(str(error))
        return PreparationError.exit_code
    terminal.write_line(os.fsencode(model.directory))
    terminal.stderr().print(f"digest {model.digest}", soft_wrap=True)
    return 0


def prepare_shown() -> PreparedModel:
    """Prepare the default model in another process, with a progress bar on stderr; raises `PreparationError`."""
    argv = [sys.executable, "-m", "copydesk.cli", "model", "prepare", "--json"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        last = _follow(_messages(process), _bar())
    match last:
        case Prepared():
            return PreparedModel(Path(last.directory), last.digest)
        case Refused():
            raise PreparationError(last.message)
        case _:
            raise PreparationError(f"preparing the model ended with code {process.returncode} and no result")


def _prepare_here() -> int:
    from copydesk.inference.checkpoint import prepare_default_model, read_digest

    try:
        directory = prepare_default_model(_tell)
    except CopydeskError as error:
        terminal.write_line(msgspec.json.encode(Refused(str(error))))
        return PreparationError.exit_code
    terminal.write_line(msgspec.json.encode(Prepared(str(directory), read_digest(directory))))
    return 0


def _messages(process: subprocess.Popen[bytes]) -> Iterator[Step | Prepared | Refused]:
    decoder = msgspec.json.Decoder(Step | Prepared | Refused)
    for line in process.stdout or ():
        yield decoder.decode(line)


def _follow(messages: Iterator[Step | Prepared | Refused], bar: Progress) -> Step | Prepared | Refused | None:
    """Show the steps; the bar appears with the first of them, so a model in the cache shows none."""
    message = None
    task = bar.add_task("", total=1.0)
    try:
        for message in messages:
            if isinstance(message, Step):
                _begin(bar)
                bar.update(task, description=message.stage, completed=message.share)
        if isinstance(message, Prepared):
            bar.update(task, description="the model is ready", completed=1.0)
    finally:
        if bar.live.is_started:
            bar.stop()
    return message


def _begin(bar: Progress) -> None:
    if bar.live.is_started:
        return
    if not bar.console.is_terminal:
        bar.console.print("preparing the default model; this happens once")
    bar.start()


def _bar() -> Progress:
    columns = (TextColumn("{task.description:<22}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    return Progress(*columns, console=terminal.stderr())


def _tell(stage: str, share: float) -> None:
    terminal.write_line(msgspec.json.encode(Step(stage, round(share, 3))))
