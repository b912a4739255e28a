"""`copydesk model check`: what a model's directory holds, who can serve it, where it fits, and what is wrong."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from copydesk.cli import terminal
from copydesk.cli.commands.model import PreparationError, prepare_shown

if TYPE_CHECKING:
    from copydesk.inference.inspection import EngineSupport, MemoryReport, ModelReport, Problem, Target

BAR = 32
WIDE = 1000
"""Characters in a line of output that goes to no terminal."""
SHOWN_SLOTS = 32
"""Slots whose cache the picture shows: those of a pod by default."""
FAULTY = 2
_NAMES_SHOWN = 4


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """What the user asked for; `directory` None is the default model. `context` is the tokens of a slot."""

    directory: Path | None
    targets: tuple[str, ...]
    context: int
    as_json: bool


def check(request: CheckRequest) -> int:
    """Look at a model and show what was found; returns the exit code."""
    from copydesk.inference.inspection import UnknownTargetError, inspect_model

    try:
        targets = _targets(request.targets)
        directory = request.directory or prepare_shown().directory
    except (UnknownTargetError, PreparationError) as error:
        terminal.say_error(str(error))
        return FAULTY
    report = inspect_model(directory.expanduser(), targets, context=request.context)
    if request.as_json:
        terminal.write_line(msgspec.json.encode(as_object(report)))
    else:
        if report.architecture or report.sizes.files:
            _show(page(report))
        for problem in report.problems:
            _say(problem)
    return 0 if report.usable else FAULTY


def _show(found: RenderableType) -> None:
    """Print it; where no terminal says how wide it is, a line stays a line, so that others can search in it."""
    if sys.stdout.isatty():
        terminal.stdout().print(found)
        return
    wide = Console(highlight=False, width=WIDE)
    with wide.capture() as captured:
        wide.print(found)
    lines = (line.rstrip() for line in captured.get().splitlines())
    terminal.write_line("\n".join(lines).encode())


def as_object(report: ModelReport) -> dict[str, Any]:
    """Return what `--json` writes: the report, and whether the model can be used."""
    content: dict[str, Any] = msgspec.to_builtins(report)
    return {"usable": report.usable, **content}


def page(report: ModelReport) -> RenderableType:
    """Return the report for a person to read."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for title, lines in _rows(report):
        table.add_row(title, Group(*lines))
    return Group(Text(report.directory, style="bold"), Text(), table, Text(), _conclusion(report))


def _targets(names: Sequence[str]) -> list[Target]:
    from copydesk.inference.inspection import target_of, this_machine

    return [this_machine(), *(target_of(name) for name in names)]


def _rows(report: ModelReport) -> Iterator[tuple[str, list[RenderableType]]]:
    yield "Model", [Text(_summary(report))]
    yield "Engines", [_engine(engine) for engine in report.engines] or [Text("none: there is no config.json")]
    if report.shape is not None:
        yield "Shape", [Text(_shape(report))]
    yield "Weights", [Text(line) for line in _weights(report)]
    if report.tokenizer is not None:
        one = report.tokenizer
        yield "Tokenizer", [Text(f"{one.kind}, {one.tokens:,} tokens, {len(one.special)} of them special")]
    if report.prompt is not None:
        asked = report.prompt
        stops = " ".join(asked.stop_tokens)
        what = f"{asked.template}, {asked.around} tokens around a sentence; an answer ends with {stops}"
        yield "Prompt", [Text(what), Text(asked.prompt, style="dim")]
    targets = dict.fromkeys(one.target for one in report.memory)
    for target in targets:
        yield "Memory", list(_memory([one for one in report.memory if one.target == target]))
    if targets:
        yield "", [Text(f"{'':<9}█ process and weights  ▒ cache of {SHOWN_SLOTS} slots  · left", style="dim")]


def _summary(report: ModelReport) -> str:
    sizes = report.sizes
    parameters = f"{_count(sizes.parameters)} parameters" if sizes.parameters else "no weights"
    return f"{report.architecture or 'no architecture'}, {parameters}"


def _engine(engine: EngineSupport) -> RenderableType:
    word, style = {True: ("yes", "green"), False: ("no", "red"), None: ("unknown", "yellow")}[engine.supported]
    line = Text(f"{engine.engine:<8}").append(word, style=style)
    return line.append(f"  {engine.reason}", style="dim") if engine.reason else line


def _shape(report: ModelReport) -> str:
    shape = report.shape
    assert shape is not None
    grouped = "" if shape.kv_heads == shape.heads else f" ({shape.kv_heads} of keys and values)"
    return (
        f"{shape.layers} layers of {shape.hidden:,}, {shape.heads} heads{grouped} of {shape.head_dim}, "
        f"vocabulary {shape.vocabulary:,}, context {shape.context:,}, "
        f"output head {'tied to the embedding' if shape.tied else 'of its own'}"
    )


def _weights(report: ModelReport) -> Iterator[str]:
    sizes = report.sizes
    files = "1 file" if sizes.files == 1 else f"{sizes.files} files"
    types = ", ".join(f"{name} {size(one.bytes)}" for name, one in sizes.by_dtype.items())
    yield f"{size(sizes.bytes)} in {files}, {sizes.tensors:,} tensors: {types}" if sizes.tensors else "none"
    quantised = report.quantisation
    if quantised is not None:
        scale = "tensor" if quantised.per_tensor else "channel"
        what = f"{quantised.scheme}, a scale for each {scale}" if quantised.scheme else "in a form not known here"
        kept = f"; kept: {_shortened(quantised.ignore)}" if quantised.ignore else ""
        yield f"quantised by {quantised.method or 'an unnamed method'}: {what}{kept}"


def _shortened(names: Sequence[str]) -> str:
    """The first names: a plan that keeps attention alone names over a hundred modules of a small model."""
    if len(names) <= _NAMES_SHOWN:
        return ", ".join(names)
    return f"{', '.join(names[:_NAMES_SHOWN])} and {len(names) - _NAMES_SHOWN} more (all with --json)"


def _memory(reports: Sequence[MemoryReport]) -> Iterator[RenderableType]:
    yield Text(f"{reports[0].target}, {size(reports[0].total)}")
    for one in reports:
        line = Text(f"{one.arithmetic:<9}").append_text(bar(one))
        slots = f"{one.slots:,} slots fit" if one.slots else "does not fit"
        each = f"{size(one.kv_bytes_per_slot)} a slot of {one.context} tokens"
        yield line.append(f" {size(one.weights)}, {each}: ").append(slots, style="" if one.slots else "bold red")


def bar(report: MemoryReport) -> Text:
    """Return a picture of a target's memory: what is fixed, the cache of some slots, and what is left."""
    scale = BAR / max(report.total, 1)
    fixed = min(BAR, ceil((report.fixed + report.weights) * scale))
    cache = min(BAR - fixed, ceil(min(report.slots, SHOWN_SLOTS) * report.kv_bytes_per_slot * scale))
    left = BAR - fixed - cache
    return Text("█" * fixed, style="cyan").append("▒" * cache, style="magenta").append("·" * left, style="dim")


def _conclusion(report: ModelReport) -> Text:
    errors = len(report.errors)
    told = _number(len(report.problems) - errors, "warning")
    if errors:
        return Text(f"It cannot be used as it is: {_number(errors, 'error')}, {told}.", style="red")
    if report.problems:
        return Text(f"It can be used: {told}.", style="yellow")
    return Text("It can be used: nothing is wrong with it.", style="green")


def _say(problem: Problem) -> None:
    line = f"{problem.about}: {problem.what}" if problem.about else problem.what
    if problem.severity == "error":
        terminal.say_error(line, problem.advice)
        return
    advice = f"; [dim]{escape(problem.advice)}[/]" if problem.advice else ""
    terminal.stderr().print(f"[yellow]warning:[/] {escape(line)}{advice}", soft_wrap=True)


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _count(numbers: int) -> str:
    for unit, name in ((10**9, "billion"), (10**6, "million")):
        if numbers >= unit:
            return f"{numbers / unit:.3g} {name}"
    return f"{numbers:,}"


def size(number: int) -> str:
    """Write bytes as people do, in powers of 1,024."""
    amount = float(number)
    for unit in ("bytes", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if amount >= 100 or unit == "bytes" else f"{amount:.3g} {unit}"
        amount /= 1024
    return f"{amount:,.1f} GiB"
