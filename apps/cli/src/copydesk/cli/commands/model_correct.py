"""`copydesk model correct`: standard input through a model of this process, one sentence a line, in order."""

from __future__ import annotations

import enum
import os
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal

import msgspec
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from copydesk.cli import terminal
from copydesk.cli.commands.model import PreparationError, prepare_shown
from copydesk.common.errors import CopydeskError
from copydesk.common.tasks import Outcome
from copydesk.common.telemetry import configure_logging
from copydesk.text import edits

if TYPE_CHECKING:
    from copydesk.common.tasks import CorrectedSentence
    from copydesk.inference.offline import OfflineCorrector
    from copydesk.inference.pod.failure import CannotStartError
    from copydesk.inference.settings import InferenceSettings

READ_AHEAD = 1_024
MOST_WARNINGS = 10
BLOCK_BYTES = 64 * 1024
LONGEST_LINE = 16 << 20
"""Bytes; thousands of times what any model takes as a sentence. What is longer is no file of sentences."""
BLANK = "blank"


class InvalidLineError(CopydeskError):
    """A line of the input that is no text: its `number`, from 1, and the `byte` of it where that shows, from 1."""

    exit_code = 2

    def __init__(self, number: int, byte: int, value: int) -> None:
        self.number = number
        self.byte = byte
        super().__init__(f"standard input, line {number}: byte {byte} of it (0x{value:02x}) is no UTF-8")


class EndlessLineError(CopydeskError):
    """A line of the input that is far too long for a sentence: its `number`, from 1."""

    exit_code = 2

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(f"standard input, line {number}: it is longer than {LONGEST_LINE >> 20} MiB")


class UnreadableInputError(CopydeskError):
    """Standard input cannot be read: it carries the `reason`."""

    exit_code = 2

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"standard input: {reason}")


BadLine = InvalidLineError | EndlessLineError


@dataclass(frozen=True, slots=True)
class CorrectRequest:
    """What the user asked for; `directory` None is the default model, `dtype` "" what the settings say."""

    directory: Path | None
    dtype: str
    as_json: bool


@dataclass(frozen=True, slots=True)
class Line:
    """A line without its end: white space, the sentence in it ("" where there is none), white space."""

    before: str
    sentence: str
    after: str

    @classmethod
    def of(cls, text: str) -> Line:
        """Cut a line into its parts."""
        sentence = text.strip()
        if not sentence:
            return cls(text, "", "")
        start = text.index(sentence)
        return cls(text[:start], sentence, text[start + len(sentence) :])

    def around(self, sentence: str) -> str:
        """Return the line with another sentence in it."""
        return f"{self.before}{sentence}{self.after}"


class Edit(msgspec.Struct, frozen=True):
    """Replace the code points [`start`, `end`) of the line."""

    start: int
    end: int
    replacement: str


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What `--json` writes of a line; `outcome` is the pod's, or "blank"."""

    line: int
    text: str
    corrected: str
    outcome: str
    edits: tuple[Edit, ...] = ()
    prompt_tokens: int = 0
    completion_tokens: int = 0


Show = Callable[[int, Line, "CorrectedSentence | None"], bytes]
"""Makes the bytes of a line of output, from its number, the line, and the answer (None where it is blank)."""


def correct(request: CorrectRequest) -> int:
    """Correct standard input, line by line; returns the exit code."""
    from copydesk.inference.engine import EngineBrokenError
    from copydesk.inference.offline import OfflineCorrector
    from copydesk.inference.pod.failure import CannotStartError

    configure_logging("model correct", level="error")
    if request.directory is not None and not request.directory.is_dir():
        what = "it is no directory" if request.directory.exists() else "there is no such directory"
        terminal.say_error(f"{request.directory}: {what}")
        return 2
    try:
        settings = _settings(request)
        model = OfflineCorrector.open(settings)
        if sys.stdin is None:
            raise UnreadableInputError("it is closed")
        if sys.stdin.isatty():
            terminal.stderr().print("[dim]a sentence a line; end with Ctrl-D on an empty line[/]")
        correct_lines(sys.stdin.fileno(), sys.stdout.buffer, model, shown(as_json=request.as_json))
    except CannotStartError as error:
        return _cannot_start(error)
    except (PreparationError, InvalidLineError, EndlessLineError, UnreadableInputError) as error:
        terminal.say_error(str(error))
        return 2
    except EngineBrokenError as error:
        terminal.say_error(str(error))
        return 1
    except BrokenPipeError:
        raise
    except OSError as error:
        terminal.say_error(f"standard output: {error.strerror or error}")
        return 1
    return 0


def _cannot_start(error: CannotStartError) -> int:
    if error.setting == "MODEL_DIR":
        terminal.say_error(error.reason, "copydesk model check says more")
    else:
        terminal.say_error(str(error))
    return 2


def _settings(request: CorrectRequest) -> InferenceSettings:
    from copydesk.common.settings import load_settings
    from copydesk.inference.settings import InferenceSettings

    directory = request.directory or prepare_shown().directory
    chosen: dict[str, object] = {"model_dir": directory.absolute()}
    if request.dtype:
        chosen["dtype"] = request.dtype
    return load_settings(InferenceSettings, warn=False, **chosen)


def shown(*, as_json: bool) -> Show:
    """Return what makes output of an answer."""
    return _as_json if as_json else _as_text


def correct_lines(source: int, target: IO[bytes], model: OfflineCorrector, show: Show) -> None:
    """Correct every line that a descriptor gives, and write each as soon as it and all before it are known.

    Raises:
        InvalidLineError, EndlessLineError: A line is no UTF-8, or has no end. All lines before it have been
            written.
    """
    passage = _Passage(target, model, show)
    with _progress() as told:
        passage.run(_Reader(source), told)
    passage.conclude()


class _Passage:
    """The lines between input and output: those that were read and not yet written, and how the input ended."""

    def __init__(self, target: IO[bytes], model: OfflineCorrector, show: Show) -> None:
        self._target = target
        self._model = model
        self._show = show
        self._waiting: deque[Line] = deque()
        self._written = 0
        self._too_long = 0
        self._ended = False
        self._failure: BadLine | None = None

    def run(self, reader: _Reader, told: Callable[[int], None]) -> None:
        """Work until there is nothing left."""
        while not self._ended or self._waiting:
            self._take(reader)
            if self._model.busy:
                self._model.step()
            if self._give():
                self._target.flush()
                told(self._written)

    def conclude(self) -> None:
        """Say what is left to be said of the input; raises what was wrong with it."""
        if self._too_long > MOST_WARNINGS:
            _say_warning(f"{self._too_long} lines were too long for the model, and left as they are")
        if self._failure is not None:
            raise self._failure

    def _take(self, reader: _Reader) -> None:
        """Read as many lines as there is room for; wait for one only if there is nothing else to do."""
        while not self._ended and self._model.room and len(self._waiting) < READ_AHEAD:
            found = reader.next(wait=not self._waiting)
            if found is NOTHING_YET:
                return
            if isinstance(found, Line):
                self._waiting.append(found)
                if found.sentence:
                    self._model.add(found.sentence)
            else:
                self._ended, self._failure = True, found

    def _give(self) -> bool:
        """Write what is known of the first lines; say whether that was anything."""
        before = self._written
        while self._waiting:
            line, answer = self._waiting[0], None
            if line.sentence:
                answer = self._model.pop()
                if answer is None:
                    break
            self._waiting.popleft()
            self._written += 1
            self._target.write(self._show(self._written, line, answer))
            if answer is not None and answer.outcome is Outcome.TOO_LONG:
                self._warn()
        return self._written > before

    def _warn(self) -> None:
        self._too_long += 1
        if self._too_long <= MOST_WARNINGS:
            _say_warning(
                f"line {self._written} and its correction would take more than the {self._model.context} tokens "
                "of the context; it is left as it is"
            )


class _Nothing(enum.Enum):
    YET = enum.auto()


NOTHING_YET = _Nothing.YET


class _Reader:
    """Reads lines on a thread of its own, so that waiting for one never holds up those that are at work.

    From the descriptor: at the end, Python would wait for the lock of a file object that the thread still reads.
    """

    def __init__(self, source: int) -> None:
        self._found: queue.Queue[Line | BadLine | UnreadableInputError | None] = queue.Queue(READ_AHEAD)
        threading.Thread(target=self._read, args=(source,), daemon=True, name="reader").start()

    def next(self, *, wait: bool) -> Line | BadLine | Literal[_Nothing.YET] | None:
        """Return the next line, None after the last, or what is wrong with one that is none.

        Raises:
            UnreadableInputError: There is nothing to be had from the descriptor.
        """
        try:
            found = self._found.get(block=wait)
        except queue.Empty:
            return NOTHING_YET
        if isinstance(found, UnreadableInputError):
            raise found
        return found

    def _read(self, source: int) -> None:
        try:
            for number, content in enumerate(_split(source), 1):
                self._found.put(Line.of(_decoded(content, number)))
            self._found.put(None)
        except (InvalidLineError, EndlessLineError) as error:
            self._found.put(error)
        except OSError as error:
            self._found.put(UnreadableInputError(error.strerror or str(error)))


def _split(source: int) -> Iterator[bytes]:
    """Yield lines without their ends; what follows the last newline is a line if it is not empty."""
    rest = bytearray()
    count = 0
    while block := os.read(source, BLOCK_BYTES):
        first, *others = block.split(b"\n")
        rest += first
        if len(rest) > LONGEST_LINE:
            raise EndlessLineError(count + 1)
        for other in others:
            count += 1
            yield bytes(rest)
            rest = bytearray(other)
    if rest:
        yield bytes(rest)


def _decoded(content: bytes, number: int) -> str:
    try:
        return content.decode().removeprefix("\ufeff" if number == 1 else "")
    except UnicodeDecodeError as error:
        raise InvalidLineError(number, error.start + 1, content[error.start]) from error


def _as_text(_number: int, line: Line, answer: CorrectedSentence | None) -> bytes:
    return (line.around(answer.text if answer is not None else "").encode()) + b"\n"


def _as_json(number: int, line: Line, answer: CorrectedSentence | None) -> bytes:
    text = line.around(line.sentence)
    if answer is None:
        return msgspec.json.encode(Row(line=number, text=text, corrected=text, outcome=BLANK)) + b"\n"
    corrected = line.around(answer.text)
    row = Row(
        line=number,
        text=text,
        corrected=corrected,
        outcome=answer.outcome.value,
        edits=tuple(Edit(edit.start, edit.end, edit.replacement) for edit in edits(text, corrected)),
        prompt_tokens=answer.prompt_tokens,
        completion_tokens=answer.completion_tokens,
    )
    return msgspec.json.encode(row) + b"\n"


def _say_warning(text: str) -> None:
    terminal.stderr().print(f"[yellow]warning:[/] {text}", soft_wrap=True)


@contextmanager
def _progress() -> Iterator[Callable[[int], None]]:
    """Count lines on a terminal that does not show the lines themselves."""
    if not sys.stderr.isatty() or sys.stdout.isatty():
        yield lambda _: None
        return
    began = time.monotonic()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=terminal.stderr()) as bar:
        task = bar.add_task("correcting")
        yield lambda count: bar.update(task, description=_pace(count, time.monotonic() - began))


def _pace(count: int, seconds: float) -> str:
    lines = "1 line" if count == 1 else f"{count:,} lines"
    return f"{lines}, {60 * count / max(seconds, 1e-3):,.0f} a minute"
