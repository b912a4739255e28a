"""A run for people: a table in Markdown, which a terminal shows as well as a document, and what it says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from copydesk.cli.bench.figures import Figures, Ratios
from copydesk.cli.bench.result import Result

_HEAD = (
    "engine",
    "requests/s",
    "users",
    "P50 ms",
    "P99 ms",
    "passes",
    "P50 ms, loaded",
    "P99 ms, loaded",
    "as greedy",
    "MB",
)
_RANDOM_HEAD = ("engine", "requests/s", "users", "P50 ms", "of vLLM bf16")


def render(result: Result) -> str:
    """Return the tables and the comparison with vLLM."""
    parts = [_heading(result), table(_HEAD, (_row(name, result) for name in result.engines))]
    if result.random_50_50.engines:
        rows = (_random_row(name, result) for name in result.random_50_50.engines)
        parts += ["50 random tokens in, 50 out, no drafts:", table(_RANDOM_HEAD, rows)]
    if lines := _comparison(result):
        parts.append("\n".join(lines))
    if notes := [*_missing(result)]:
        parts.append("\n".join(notes))
    return "\n\n".join(parts)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return an aligned table in Markdown, numbers to the right."""
    cells = [list(head), *map(list, rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    lines = [_line(cells[0], widths), "| " + " | ".join(rule) + " |", *(_line(row, widths) for row in cells[1:])]
    return "\n".join(lines)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    padded = [
        row[0].ljust(widths[0]),
        *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
    ]
    return "| " + " | ".join(padded) + " |"


def _heading(result: Result) -> str:
    machine = result.machine
    versions = ", ".join(f"{name} {version}" for name, version in result.versions.items())
    processor = f"{machine.processor}, {machine.cores} cores ({' '.join(machine.instructions)})"
    return (
        f"{result.started_at}, `{result.command}`, {result.duration_s / 60:.0f} minutes. {processor}, "
        f"{machine.memory_gib:.0f} GiB, {machine.system}. {versions}."
    )


def _row(name: str, result: Result) -> tuple[str, ...]:
    one: Figures = result.engines[name]
    return (
        name,
        f"{one.requests_per_second:.2f}",
        str(one.concurrency),
        f"{one.p50_ms:.0f}",
        f"{one.p99_ms:.0f}",
        _number(one.passes_per_request, ".1f"),
        f"{one.saturated.p50_ms:.0f}",
        f"{one.saturated.p99_ms:.0f}",
        _number(one.identical_to_greedy, ".1%"),
        _number(result.resident_mb.get(name), ".0f"),
    )


def _random_row(name: str, result: Result) -> tuple[str, ...]:
    one = result.random_50_50.engines[name]
    ratio = result.random_50_50.ratio_to_vllm_bf16.get(name)
    rate, p50 = f"{one.requests_per_second:.2f}", f"{one.p50_ms:.0f}"
    return (name, rate, str(one.concurrency), p50, _number(ratio, ".2f"))


def _comparison(result: Result) -> list[str]:
    against = (
        ("vLLM's best setting", result.ratio_to_best_vllm),
        ("vLLM token by token", result.ratio_to_vllm_token_by_token),
        ("vLLM with n-gram speculation", result.ratio_to_vllm_ngram),
    )
    return [f"Against {name}: {_ratios(ratios)}." for name, ratios in against if ratios.settings]


def _ratios(ratios: Ratios) -> str:
    shown = (
        ("requests/s", ratios.requests_per_second, ".2f"),
        ("P50", ratios.p50_ms, ".3f"),
        ("P99", ratios.p99_ms, ".3f"),
        ("passes", ratios.passes_per_request, ".3f"),
    )
    return ", ".join(f"{name} x {value:{form}}" for name, value, form in shown if value is not None)


def _missing(result: Result) -> Iterable[str]:
    for skipped in result.skipped:
        yield f"Not measured: {skipped.engine}, {skipped.reason}. Install it: `{skipped.command}`"
    for left_out in result.left_out:
        yield f"Not measured: {left_out.reason}"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else f"{value:{form}}"
