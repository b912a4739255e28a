"""How figures are written for people, the same in a terminal and on a page."""

from __future__ import annotations

from dataclasses import dataclass

from copydesk.evaluation.gates import Gate, Verdict
from copydesk.evaluation.result import Estimate, EvaluationResult, Metric, Told


@dataclass(frozen=True, slots=True)
class Row:
    """A figure's name, and by what it is multiplied and with how many decimals it is shown."""

    key: str
    name: str
    scale: float
    decimals: int


ROWS = (
    Row("gleu", "GLEU", 1.0, 2),
    Row("precision", "precision of edits, %", 100.0, 1),
    Row("recall", "recall of edits, %", 100.0, 1),
    Row("f0.5", "F0.5 of edits, %", 100.0, 1),
    Row("exact_match", "exact matches, %", 100.0, 1),
    Row("over_correction", "clean sentences changed, %", 100.0, 1),
    Row("agreement", "words in common, %", 100.0, 2),
    Row("agreement_sentences", "sentences in common, %", 100.0, 1),
    Row("p50_ms", "latency P50, ms", 1.0, 1),
    Row("p99_ms", "latency P99, ms", 1.0, 1),
)

VERDICTS = {
    Verdict.PASS: "it loses no more than it may",
    Verdict.FAIL: "it loses more than it may",
    Verdict.INCONCLUSIVE: "these sentences do not tell",
}


def estimate(row: Row, value: Estimate, *, signed: bool = False) -> str:
    """Write a figure with its interval."""
    form = f"{'+' if signed else ''}.{row.decimals}f"
    low, high = (format(row.scale * end, form) for end in (value.low, value.high))
    return f"{format(row.scale * value.value, form)} ({low} to {high})"


def figure_rows(result: EvaluationResult) -> list[tuple[Metric, list[str]]]:
    """Write each figure that was found: name, candidate's, and beside a reference its and the difference."""
    rows = []
    for row in ROWS:
        metric = result.metrics.get(row.key)
        if metric is None:
            continue
        cells = [row.name, estimate(row, metric.candidate)]
        if result.reference is not None:
            cells.append(estimate(row, metric.reference) if metric.reference else "")
            cells.append(estimate(row, metric.difference, signed=True) if metric.difference else "")
        rows.append((metric, cells))
    return rows


def gate_line(gate: Gate) -> str:
    """Write what a gate found."""
    found = f"{gate.what}: {_two(gate.loss)} {gate.unit}"
    sure = f"({100 * gate.confidence:.0f} % sure), may be {gate.margin:g}"
    if gate.verdict is Verdict.FAIL:
        return f"{found}, at least {_two(gate.low)} {sure}"
    line = f"{found}, at most {_two(gate.high)} {sure}"
    if gate.verdict is Verdict.PASS:
        return line
    if gate.needed is None:
        return f"{line}; no number of sentences would tell, the loss is the margin"
    return f"{line}; about {gate.needed} sentences more than these {gate.sentences} would tell"


def _two(value: float) -> str:
    """Two decimals, without a minus before zero."""
    return f"{round(value, 2) + 0.0:.2f}"


def told(model: Told) -> str:
    """Write who a model is and what it did."""
    facts = ", ".join(f"{name} {value}" for name, value in model.facts.items())
    return f"{model.name} ({facts})" if facts else model.name


def kept(model: Told) -> str:
    """Write how many answers were not used, and why; "" if all were."""
    return ", ".join(f"{count} {name}" for name, count in model.kept.items())


def data_line(result: EvaluationResult) -> str:
    """Write what the evaluation was made on."""
    counts = result.counts
    form = "tokens" if result.tokenised else "plain text"
    return (
        f"{result.data}: {counts.sentences} sentences with {counts.references} references in {form}, "
        f"{counts.clean} clean"
    )


def rate(value: float | None) -> str:
    """Write sentences a second."""
    return "not measured" if value is None else f"{value:.1f}"
