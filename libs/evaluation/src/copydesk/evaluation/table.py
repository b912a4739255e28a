"""An evaluation for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from copydesk.evaluation.result import EditFigures, EvaluationResult
from copydesk.evaluation.wording import VERDICTS, data_line, figure_rows, gate_line, kept, rate, told

_MOST_TYPES = 12
"""Types of edits shown: the others are few edits, and in the JSON."""


def table(result: EvaluationResult) -> str:
    """Return the result as lines."""
    parts = [_head(result), _aligned(list(_figures(result))), _aligned(list(_types(result)))]
    parts += ["\n".join(_verdict(result))]
    return "\n\n".join(part for part in parts if part)


def _head(result: EvaluationResult) -> str:
    rows = [["candidate", told(result.candidate)]]
    if result.reference:
        rows.append(["against", told(result.reference)])
    rows.append(["data", data_line(result)])
    for name, model in (("candidate", result.candidate), ("reference", result.reference)):
        if model and kept(model):
            rows.append([f"{name} kept", f"{kept(model)}: answers that were not used"])
    return _aligned(rows)


def _figures(result: EvaluationResult) -> Iterator[list[str]]:
    compared = result.reference is not None
    yield ["", "candidate", *(["reference", "difference"] if compared else [])]
    yield from (cells for _, cells in figure_rows(result))
    rates = [model.rate for model in (result.candidate, result.reference) if model]
    yield ["sentences a second", *map(rate, rates)]
    yield ["GLEU of the text as it is", f"{result.gleu_unchanged:.2f}"]


def _types(result: EvaluationResult) -> Iterator[list[str]]:
    if not result.types:
        return
    columns = ["right", "wrong", "missed", "F0.5 %"]
    against = ["reference: right", *columns[1:]] if result.reference else []
    yield [f"edits by type ({result.edits_by})", *columns, *against]
    for row in result.types[:_MOST_TYPES]:
        yield [row.type, *_cells(row.candidate), *(_cells(row.reference) if row.reference else [])]
    if len(result.types) > _MOST_TYPES:
        yield [f"and {len(result.types) - _MOST_TYPES} more"]


def _cells(figures: EditFigures) -> list[str]:
    return [str(figures.right), str(figures.wrong), str(figures.missed), f"{100 * figures.f_half:.1f}"]


def _verdict(result: EvaluationResult) -> Iterator[str]:
    width = max((len(gate.verdict) for gate in result.gates), default=0)
    for gate in result.gates:
        yield f"{gate.verdict:<{width}}  {gate_line(gate)}"
    for note in result.notes:
        yield f"note: {note}"
    if result.verdict is not None:
        yield f"verdict: {result.verdict}, {VERDICTS[result.verdict]}"


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    widths = [max(len(row[i]) for row in rows if len(row) > i) for i in range(max(map(len, rows)))]
    return "\n".join("  ".join(map(_padded, row, widths)).rstrip() for row in rows)


def _padded(cell: str, width: int) -> str:
    return f"{cell:<{width}}"
