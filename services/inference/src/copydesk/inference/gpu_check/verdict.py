"""What the GPU path is to achieve, and whether it does by the rows of one run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from copydesk.inference.gpu_check.rows import Row

PART = "bar"


@dataclass(frozen=True, slots=True)
class _Bar:
    """`setting` is to be at least `least` times `base`, both of the same part and workload."""

    name: str
    part: str
    workload: str
    setting: str
    base: str
    least: float


_BARS = (
    _Bar("FP8 over bf16", "engine", "50/50", "fp8", "bf16", 1.25),
    _Bar(
        "the whole over the starting point, engine",
        "engine",
        "50/50",
        "fp8",
        "bf16, synchronous, inputs in Python",
        1.6,
    ),
    _Bar("the whole over the starting point, pod", "pod", "50/50", "fp8, *", "bf16, synchronous, 1 worker", 1.6),
    _Bar("drafts over none", "engine", "correction", "fp8, drafts", "fp8", 2.0),
)


def bars(rows: Sequence[Row]) -> list[Row]:
    """A row for each bar and model; without the rates that it compares, it is not judged."""
    models = list(dict.fromkeys(row.model for row in rows if row.unit == "requests/s"))
    return [_judged(bar, model, rows) for model in models for bar in _BARS]


def _judged(bar: _Bar, model: str, rows: Iterable[Row]) -> Row:
    rates = {
        row.setting: row.value
        for row in rows
        if (row.part, row.model, row.workload) == (bar.part, model, bar.workload) and row.value and row.ok
    }
    base = rates.get(bar.base)
    prefix = bar.setting.removesuffix("*")
    found = [
        rate
        for name, rate in rates.items()
        if name == bar.setting or (prefix != bar.setting and name.startswith(prefix))
    ]
    at_least = f"at least {bar.least:g}"
    if base is None or not found:
        return Row(PART, bar.name, model, note=f"{at_least}: not judged, a rate is missing")
    ratio = round(max(found) / base, 2)
    return Row(PART, bar.name, model, value=ratio, unit="x", ok=ratio >= bar.least, note=at_least)
