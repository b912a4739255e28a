"""`copydesk model evaluate`: how well a model corrects, and whether it loses anything against another."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from copydesk.cli import terminal
from copydesk.cli.api import ApiError, FleetUnreachableError, advice
from copydesk.cli.commands.model import prepare_shown
from copydesk.cli.evaluation.subjects import LocalModel, ModelLoadError, RemoteModel, is_url
from copydesk.cli.output_file import require_writable
from copydesk.common.errors import CopydeskError
from copydesk.common.telemetry import configure_logging
from copydesk.evaluation import (
    Corpus,
    EvaluationResult,
    Options,
    Progress,
    Source,
    Verdict,
    evaluate,
    own_corpus,
    read_corpus,
)
from copydesk.evaluation.page import html
from copydesk.evaluation.table import table

if TYPE_CHECKING:
    from copydesk.evaluation import OnProgress, Subject

DEFAULT = "default"
"""Instead of a directory: the default model, prepared if it has to be."""
BAD_INPUT = 2
CODES = {Verdict.PASS: 0, Verdict.FAIL: 1, Verdict.INCONCLUSIVE: 3}
_INTERRUPTED = 130
TELL_S = 10.0
"""How often progress is told where it is not drawn, in seconds."""


@dataclass(frozen=True, slots=True)
class EvaluateRequest:
    """What was asked for. `source` None is the evaluation set that comes with Copydesk."""

    candidate: str
    reference: str | None
    source: Source | None
    clean: Path | None
    limit: int | None
    dtype: str
    reference_dtype: str
    threads: int | None
    options: Options
    page: Path | None
    as_json: bool


def run(request: EvaluateRequest) -> int:
    """Evaluate and show; returns the exit code."""
    configure_logging("model evaluate", level="error")
    try:
        require_writable(request.page)
        corpus = corpus_of(request)
        with ExitStack() as stack, _told() as progress:
            candidate = _open(request.candidate, request.dtype, request.threads, stack)
            reference = None
            if request.reference is not None:
                reference = _open(request.reference, request.reference_dtype, request.threads, stack)
            result = evaluate(candidate, reference, corpus, request.options, progress)
    except KeyboardInterrupt:
        terminal.say_error("interrupted")
        return _INTERRUPTED
    except (ApiError, FleetUnreachableError) as error:
        terminal.say_error(str(error), advice(error))
        return BAD_INPUT
    except CopydeskError as error:
        terminal.say_error(str(error))
        return BAD_INPUT
    return _show(result, request)


def corpus_of(request: EvaluateRequest) -> Corpus:
    """Read what to evaluate on.

    Raises:
        DataError: It cannot be read.
    """
    from copydesk.evaluation.reading import read_clean

    if request.source is not None:
        return read_corpus(request.source).first(request.limit)
    own = own_corpus(request.limit)
    clean = read_clean(request.clean)[: request.limit] if request.clean else own.clean
    return Corpus(own.name, own.examples, own.tokenised, clean)


def exit_code(result: EvaluationResult) -> int:
    """0 where there is nothing against the candidate, 1 where it failed, 3 where that is not known."""
    return 0 if result.verdict is None else CODES[result.verdict]


def _open(name: str, dtype: str, threads: int | None, stack: ExitStack) -> Subject:
    if is_url(name):
        if dtype:
            raise ModelLoadError(Path(name), f"{name} is a fleet, whose pods choose their arithmetic themselves")
        return stack.enter_context(_closing(RemoteModel(name)))
    directory = Path(name)
    if name == DEFAULT and not directory.exists():
        directory = prepare_shown().directory
    if not directory.is_dir():
        raise ModelLoadError(directory, "is no directory of a model, and no URL of a fleet")
    return LocalModel.open(directory, name=name, dtype=dtype, threads=threads)


@contextmanager
def _closing(model: RemoteModel) -> Iterator[RemoteModel]:
    try:
        yield model
    finally:
        model.close()


def _show(result: EvaluationResult, request: EvaluateRequest) -> int:
    shown = msgspec.json.encode(result.to_dict()) if request.as_json else table(result).encode()
    terminal.write_line(shown)
    if request.page is not None:
        try:
            request.page.write_text(page_of(result, time.time(), sys.argv[1:]), encoding="utf-8")
        except OSError as error:
            terminal.say_error(f"{request.page}: {error.strerror}")
            return BAD_INPUT
    return exit_code(result)


def page_of(result: EvaluationResult, now: float, arguments: list[str]) -> str:
    """Return the report as HTML; `now` is in Unix seconds."""
    made = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d %H:%M UTC")
    facts = [("made", made), ("command", shlex.join(["copydesk", *arguments]))]
    return html(result, title="How well a model corrects", facts=facts)


@contextmanager
def _told() -> Iterator[OnProgress]:
    """Tell progress: as a bar on a terminal, else as a line every few seconds."""
    if not sys.stderr.isatty():
        yield Teller(lambda line: terminal.stderr().print(escape(line), soft_wrap=True), time.monotonic)
        return
    columns = (
        TextColumn("{task.description:<16}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    with Bar(*columns, console=terminal.stderr(), transient=True) as bar:
        task = bar.add_task("loading", total=None, rate="")
        pace = Pace(time.monotonic)

        def show(step: Progress) -> None:
            bar.update(
                task, description=step.stage, completed=step.done, total=step.total or None, rate=pace.text(step)
            )

        yield show


class Pace:
    """How many answers a second, since the first was there."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began: tuple[float, int] | None = None

    def rate(self, step: Progress) -> float | None:
        """Return answers a second, None while that is not known."""
        now = self._clock()
        if self._began is None or step.done < self._began[1]:
            self._began = now, step.done
        began, first = self._began
        return (step.done - first) / (now - began) if step.done > first and now > began else None

    def text(self, step: Progress) -> str:
        """Return that in words."""
        rate = self.rate(step)
        return "" if rate is None else f"{rate:.1f}/s"


class Teller:
    """Tells each new stage, and every ten seconds how far it is."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._say = say
        self._clock = clock
        self._pace = Pace(clock)
        self._stage = ""
        self._told = clock()

    def __call__(self, step: Progress) -> None:
        """Take in how far it is."""
        rate = self._pace.rate(step)
        now = self._clock()
        if step.stage == self._stage and now - self._told < TELL_S:
            return
        self._stage, self._told = step.stage, now
        line = f"{step.stage}: {step.done} of {step.total} answers" if step.total else step.stage
        left = f", {rate:.1f}/s, about {(step.total - step.done) / rate:.0f} s left" if rate else ""
        self._say(line + left)


class MarginSyntaxError(CopydeskError):
    """A margin on the command line that is not NAME=NUMBER: `text`."""

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(f"{text!r}; expected a number, for GLEU, or NAME=NUMBER, such as over_correction=1")


def margins_of(texts: list[str]) -> dict[str, float]:
    """Read margins: NAME=NUMBER, or a number alone for GLEU.

    Raises:
        MarginSyntaxError: One is neither.
    """
    margins = {}
    for text in texts:
        name, sign, value = text.rpartition("=")
        try:
            margins[name.strip().replace("-", "_") if sign else "gleu"] = float(value)
        except ValueError as error:
            raise MarginSyntaxError(text) from error
    return margins
