"""`copydesk correct`: arguments or standard input through the fleet, in order, whatever the size.

A long text goes out as several requests that are corrected side by side; what comes back is written in the order
of the text, so the command can stand in a pipe.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from copydesk.cli import terminal
from copydesk.cli.api import BUSY, Api, ApiError, Correction, FleetUnreachableError, Timed, advice
from copydesk.cli.commands.status import find_fleet
from copydesk.cli.crew import Crew
from copydesk.cli.edits import marked, spans
from copydesk.cli.parts import PART_CHARS, InvalidInputError, decode, split

SIDE_BY_SIDE = 3
"""Enough sentences to fill the pods of a machine; with more, a long text would only make everybody else wait."""
BLOCK_BYTES = 64 * 1024
BUSY_TRIES = 8
"""How often a busy fleet is asked again: after 1, 2, 4 ... seconds, or after what it says, at most 15."""


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of the input: where it begins, in code points, and what became of it."""

    offset: int
    text: str
    answer: Timed


Show = Callable[[Part], str]


def correct(texts: list[str], *, url: str | None, as_json: bool, diff: bool) -> int:
    """Correct each text, or standard input when there is none; returns the exit code."""
    found, _ = find_fleet(url)
    api = Api(found)
    try:
        if texts:
            _correct_texts(api, texts, _shower(as_json, diff, end="\n"))
        else:
            _correct_stdin(api, _shower(as_json, diff, end=""))
    except (ApiError, FleetUnreachableError) as error:
        terminal.say_error(str(error), advice(error))
        return error.exit_code
    except InvalidInputError as error:
        terminal.say_error(str(error))
        return 2
    finally:
        api.close()
    return 0


def _correct_texts(api: Api, texts: list[str], show: Show) -> None:
    for text in texts:
        _check_encodable(text)
    if len(texts) == 1 and os.path.isfile(texts[0]):  # noqa: PTH113 - a text too long for a path is no error
        name = escape(texts[0])
        terminal.stderr().print(
            f"[dim]{name} is a file; for its text: copydesk correct < {name}[/]", soft_wrap=True
        )
    with Crew(SIDE_BY_SIDE) as pool:
        for text, answer in zip(texts, pool.map(lambda text: ask(api, text, say=_say_busy), texts), strict=True):
            _write(show(Part(0, text, answer)))


def _correct_stdin(api: Api, show: Show) -> None:
    if sys.stdin.isatty():
        terminal.stderr().print("[dim]reading your text from here; end it with Ctrl-D on an empty line[/]")
    blocks = iter(lambda: os.read(sys.stdin.fileno(), BLOCK_BYTES), b"")
    with Crew(SIDE_BY_SIDE) as pool, _progress(_input_size()) as advance:
        for part in in_order(pool, split(decode(blocks), PART_CHARS), lambda text: ask(api, text)):
            _write(show(part))
            advance(len(part.text.encode()))


def in_order(pool: Executor, parts: Iterable[str], work: Callable[[str], Timed]) -> Iterator[Part]:
    """Work on a few parts at once, and yield them in the order in which they came."""
    waiting: deque[tuple[int, str, Future[Timed]]] = deque()
    offset = 0
    try:
        for text in parts:
            waiting.append((offset, text, pool.submit(work, text)))
            offset += len(text)
            while waiting and (len(waiting) > SIDE_BY_SIDE or waiting[0][2].done()):
                yield _finished(waiting.popleft())
        while waiting:
            yield _finished(waiting.popleft())
    finally:
        for _, _, future in waiting:
            future.cancel()


def ask(
    api: Api,
    text: str,
    sleep: Callable[[float], None] = time.sleep,
    say: Callable[[ApiError], None] = lambda _: None,
) -> Timed:
    """Correct one part; white space alone is nothing to correct. A busy fleet is asked again, and `say` told."""
    if not text.strip():
        return Timed(Correction(text, ()), 0.0)
    for attempt in range(BUSY_TRIES):
        try:
            return api.correct(text)
        except ApiError as error:
            if error.status not in BUSY:
                raise
            if attempt == 0:
                say(error)
            sleep(min(15.0, error.retry_after or 2.0**attempt))
    return api.correct(text)


def _say_busy(error: ApiError) -> None:
    """Tell a person at a terminal why nothing comes; where text streams or a bar moves, that tells enough."""
    if sys.stderr.isatty():
        terminal.stderr().print(f"[dim]{escape(str(error))}; trying again[/]", soft_wrap=True)


def _finished(entry: tuple[int, str, Future[Timed]]) -> Part:
    offset, text, future = entry
    return Part(offset, text, future.result())


def _shower(as_json: bool, diff: bool, end: str) -> Show:
    if as_json:
        return _as_json
    if diff:
        colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        return lambda part: marked(spans(part.text, part.answer.correction.edits), colour=colour) + end
    return lambda part: part.answer.correction.corrected + end


def _as_json(part: Part) -> str:
    correction = part.answer.correction
    row = {
        "offset": part.offset,
        "text": part.text,
        "corrected": correction.corrected,
        "edits": correction.edits,
        "latency_ms": part.answer.latency_ms,
    }
    return msgspec.json.encode(row).decode() + "\n"


def _write(text: str) -> None:
    # Bytes, since text mode would turn line ends into the platform's.
    sys.stdout.buffer.write(text.encode())
    sys.stdout.buffer.flush()


def _check_encodable(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(len(os.fsencode(text[: error.start]))) from None


def _input_size() -> int | None:
    status = os.fstat(sys.stdin.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else None


@contextmanager
def _progress(total: int | None) -> Iterator[Callable[[int], None]]:
    """Show a bar for input of more than one part, on a terminal that does not show the text itself."""
    short = total is not None and total <= PART_CHARS
    if short or not sys.stderr.isatty() or sys.stdout.isatty():
        yield lambda _: None
        return
    elapsed, remaining = TimeElapsedColumn(), TimeRemainingColumn()
    columns = (TextColumn("correcting"), BarColumn(), DownloadColumn(), elapsed, TextColumn("left"), remaining)
    with Progress(*columns, console=terminal.stderr()) as bar:
        task = bar.add_task("", total=total)
        yield lambda size: bar.update(task, advance=size)
