"""Decisions and comparisons as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from copydesk.autoscaler.compare import Comparison, Stretch, Verdict
from copydesk.autoscaler.decision import Rule
from copydesk.autoscaler.log_entry import LIVE, Entry
from copydesk.cli.decisions.row import Row
from copydesk.cli.decisions.told_rows import ToldRow, ToldRows
from copydesk.common.messages import LATENCY_BOUNDS_MS

_COLOURS = {
    Rule.UP.value: "green",
    Rule.FORECAST.value: "green",
    Rule.PANIC.value: "bold red",
    Rule.STUCK.value: "red",
    Rule.DOWN.value: "cyan",
    Rule.LIMIT.value: "yellow",
    Rule.HOLD_SILENT.value: "yellow",
    Rule.HOLD_STALE.value: "yellow",
}

_VERDICTS = {
    Verdict.MIGHT_HELP: ("might help", "green", "more pods while the objective was missed"),
    Verdict.NO_USE: ("no use", "yellow", "more pods, and nothing was seen that they would have mended"),
    Verdict.TOO_FEW: ("too few", "red", "fewer pods, and at times too few for the work"),
    Verdict.SAVED: ("saved", "green", "fewer pods, and they would have done"),
}


def decision_table(found: Sequence[Row]) -> RenderableType:
    """Show decisions, the newest last."""
    several = len({row.first.model for row in found}) > 1
    named = any(row.first.policy != LIVE for row in found)
    today = len({_day(row.first.time) for row in found} | {_day(row.last.time) for row in found}) == 1
    lines = []
    for row in found:
        cells = [Text(_time(row, with_day=not today), "dim")]
        cells += [Text(row.first.model)] if several else []
        cells += [Text(row.first.policy, "" if row.first.policy == LIVE else "magenta")] if named else []
        lines.append(ToldRow((*cells, _pods(row.first), _rule(row.first), _then(row)), _why(row)))
    who = (*(["model"] if several else []), *(["policy"] if named else []))
    return ToldRows(lines, ("time", *who, "pods", "rule", "and then", "why"))


def told(entry: Entry) -> RenderableType:
    """Show one decision as it comes, below the last."""
    name = entry.model if entry.policy == LIVE else f"{entry.model} ({entry.policy})"
    cells = (Text(_clock(entry.time), "dim"), Text(name), _pods(entry), _rule(entry))
    return ToldRows([ToldRow(cells, _why(Row(entry, entry)))], least=(8, 12, 13, 17))


def comparison_tables(found: Sequence[Comparison]) -> RenderableType:
    """Show each candidate beside the live configuration."""
    parts: list[RenderableType] = []
    for one in found:
        parts += [Text()] if parts else []
        parts += [_headline(one), _totals(one)]
        if one.stretches:
            parts += [Text(), *_stretches(one.stretches)]
        else:
            parts.append(Text("They never differed.", "dim"))
    return Group(*parts)


def _pods(entry: Entry) -> Text:
    change = entry.replicas - entry.size
    if not change:
        return Text(str(entry.size), "dim")
    return Text(f"{entry.size} → {entry.replicas} ({change:+d})", "bold green" if change > 0 else "bold cyan")


def _rule(entry: Entry) -> Text:
    return Text(entry.rule.replace("_", " "), _COLOURS.get(entry.rule, "dim"))


def _then(row: Row) -> Text:
    if not row.then:
        return Text("-", "dim")
    text = Text()
    slo_ms = row.first.slo_ms
    if row.p99_ms is not None:
        text.append(f"P99 {_latency(row.p99_ms)}", "red" if 0.0 < slo_ms < row.p99_ms else "")
    for count, what in ((row.shed, "shed"), (row.failed, "failed")):
        if count:
            text.append(f"{', ' if text else ''}{count} {what}", "red")
    return text or Text("no requests" if not row.completed else f"{row.completed} answered", "dim")


def _why(row: Row) -> Text:
    entry = row.last
    text = Text(entry.reason.partition(": ")[2] or entry.reason)
    if row.count > 1:
        text.append(f"  ({row.count} decisions)", "dim")
    if entry.acted not in ("ordered", "kept", "nobody acts"):
        text.append(f"  {entry.acted}", "red")
    if entry.stuck:
        more = len(entry.stuck) - 3
        named = ", ".join(entry.stuck[:3])
        text.append(f"  stuck: {named}{f' and {more} more' if more > 0 else ''}", "red")
    return text


def _headline(one: Comparison) -> Text:
    line = Text.assemble((one.model, "bold"), "  ", (one.candidate, "magenta"), " beside live")
    line.append(
        f"  {_moment(one.start)} to {_moment(one.end)}, {_duration(one.seconds)} in which both decided", "dim"
    )
    return line


def _totals(one: Comparison) -> Table:
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
    for column in ("", "live", one.candidate):
        table.add_column(Text(column), justify="left" if not column else "right", no_wrap=True)
    hours = (f"{one.live_pod_hours:.2f}", f"{one.candidate_pod_hours:.2f}")
    table.add_row("pod hours", *hours)
    table.add_row("moves", str(one.live_moves), str(one.candidate_moves))
    table.add_row("objective missed (observed)", _duration(one.violation_seconds), Text("-", "dim"))
    table.add_row("too few pods for the work (computed)", Text("-", "dim"), _duration(one.short_seconds))
    table.add_row("worst P99 (observed)", _latency(one.p99_ms), Text("-", "dim"))
    table.add_row("shed, failed (observed)", f"{one.shed}, {one.failed}", Text("-", "dim"))
    table.add_row("differed for", "", _duration(one.differed_seconds))
    return table


def _stretches(found: Sequence[Stretch]) -> Iterator[RenderableType]:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    one_day = len({_day(one.start) for one in found}) == 1
    shed = any(one.shed for one in found)
    for column in (
        "from",
        "for",
        "live",
        "shadow",
        "hours",
        "missed",
        "P99",
        *(["shed"] if shed else []),
        "short",
    ):
        table.add_column(column, no_wrap=True, justify="left" if column == "from" else "right")
    table.add_column("so", no_wrap=True)
    for one in found:
        word, colour, _ = _VERDICTS[one.verdict]
        table.add_row(
            Text(_clock(one.start) if one_day else _moment(one.start), "dim"),
            _duration(one.end - one.start),
            _span(one.live),
            _span(one.candidate),
            f"{one.pod_hours:+.2f}",
            _duration(one.violation_seconds),
            _latency(one.p99_ms),
            *([str(one.shed)] if shed else []),
            _duration(one.short_seconds),
            Text(word, colour),
        )
    yield table
    for verdict in dict.fromkeys(one.verdict for one in found):
        word, colour, meaning = _VERDICTS[verdict]
        yield Text.assemble((word, colour), (f": {meaning}", "dim"))


def _span(values: tuple[int, int]) -> str:
    least, most = values
    return str(least) if least == most else f"{least}-{most}"


def _latency(value: float | None) -> str:
    """Gateways count what took longer than the last bound without saying by how much."""
    if value is None:
        return "-"
    return f"{value:.0f} ms" if value < LATENCY_BOUNDS_MS[-1] else f"over {LATENCY_BOUNDS_MS[-1] / 1000:.0f} s"


def _duration(seconds: float) -> str:
    if seconds < 120.0:
        return f"{seconds:.0f} s"
    return f"{seconds / 60.0:.0f} min" if seconds < 7200.0 else f"{seconds / 3600.0:.1f} h"


def _time(row: Row, *, with_day: bool) -> str:
    first = f"{_day(row.first.time)} {_clock(row.first.time)}" if with_day else _clock(row.first.time)
    return first if row.count == 1 else f"{first} to {_clock(row.last.time)}"


def _moment(time: float) -> str:
    return f"{_day(time)} {_clock(time)}"


def _day(time: float) -> str:
    return f"{_local(time):%Y-%m-%d}"


def _clock(time: float) -> str:
    return f"{_local(time):%H:%M:%S}"


def _local(time: float) -> datetime:
    try:
        return datetime.fromtimestamp(time).astimezone()
    except (ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0).astimezone()
