"""Figures with their intervals, drawn: one row each, the candidate above the reference model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from copydesk.evaluation.gates import Gate
from copydesk.evaluation.result import Estimate, EvaluationResult
from copydesk.evaluation.wording import ROWS

WIDTH = 760
_LEFT, _RIGHT, _TOP, _ROW, _BOTTOM = 250, 24, 34, 34, 26
STYLE = (
    ".picture text{font:13px system-ui,sans-serif;fill:currentColor}"
    ".picture .grid{stroke:currentColor;opacity:.15}"
    ".picture .a{stroke:#1f6feb;fill:#1f6feb}.picture .b{stroke:#d97706;fill:#d97706}"
    ".picture .margin{stroke:#c43b3b;stroke-dasharray:5 4;stroke-width:2}.picture line.a,.picture line.b"
    "{stroke-width:3}.picture text.a,.picture text.b{stroke:none}"
)
_TICKS = 6
_STEPS = (1, 2, 5, 10, 20, 50)


@dataclass(frozen=True, slots=True)
class _Span:
    """An interval with its value, in the colour of class `style`; a square tells the reference from the dots."""

    value: float
    low: float
    high: float
    style: str


@dataclass(frozen=True, slots=True)
class _Line:
    """A row of the picture; `margin` is marked if there is one."""

    name: str
    spans: Sequence[_Span]
    margin: float | None = None


def figures(result: EvaluationResult) -> str:
    """Draw what lies between 0 and 100: GLEU and all shares."""
    lines = []
    for row in ROWS:
        metric = result.metrics.get(row.key)
        if metric is None or row.key.endswith("_ms"):
            continue
        both = [(metric.candidate, "a"), *([(metric.reference, "b")] if metric.reference else [])]
        lines.append(_Line(row.name, [_span(one, row.scale, style) for one, style in both]))
    return _svg("Figures with 95 % intervals", lines, 0.0, 100.0)


def losses(gates: Sequence[Gate]) -> str:
    """Draw what each gate measured beside its margin, as parts of the margin; "" where there is no gate."""
    if not gates:
        return ""
    lines = []
    for gate in gates:
        part = max(gate.margin, 1e-9)
        value, least, most = (_within(one / part) for one in (gate.loss, gate.low, gate.high))
        span = _Span(value, least, most, "a")
        lines.append(_Line(f"{gate.what} ({gate.margin:g} {gate.unit})", [span], 1.0))
    ends = [end for line in lines for span in line.spans for end in (span.low, span.high)]
    return _svg(
        "Losses with 90 % intervals, in margins", lines, math.floor(min(-1.0, *ends)), math.ceil(max(2.0, *ends))
    )


def _within(value: float) -> float:
    """So far out that more is not to be told from it."""
    return max(-20.0, min(20.0, value))


def _span(estimate: Estimate, scale: float, style: str) -> _Span:
    return _Span(scale * estimate.value, scale * estimate.low, scale * estimate.high, style)


def _svg(title: str, lines: Sequence[_Line], low: float, high: float) -> str:
    height = _TOP + _ROW * len(lines) + _BOTTOM
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="picture" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(title)}; the table below has the numbers">',
        f'<text x="8" y="18" font-weight="600">{escape(title)}</text>',
        *_axis(low, high, height),
        *(part for number, line in enumerate(lines) for part in _drawn(line, number, low, high)),
        "</svg>",
    ]
    return "\n".join(drawn)


def _axis(low: float, high: float, height: int) -> Iterator[str]:
    step = next((step for step in _STEPS if step * _TICKS >= high - low), _STEPS[-1])
    for tick in range(math.ceil(low / step), math.floor(high / step) + 1):
        value = tick * step
        x = _x(value, low, high)
        yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 6}" y2="{height - _BOTTOM}"/>'
        yield f'<text x="{x:.1f}" y="{height - 8}" text-anchor="middle">{value}</text>'


def _drawn(line: _Line, number: int, low: float, high: float) -> Iterator[str]:
    middle = _TOP + _ROW * number + _ROW / 2
    yield f'<text x="8" y="{middle + 4:.1f}">{escape(line.name)}</text>'
    if line.margin is not None:
        x = _x(line.margin, low, high)
        top, end = middle - _ROW / 2, middle + _ROW / 2
        yield f'<line class="margin" x1="{x:.1f}" x2="{x:.1f}" y1="{top:.1f}" y2="{end:.1f}"/>'
    for place, span in enumerate(line.spans):
        y = middle + 7.0 * (place - (len(line.spans) - 1) / 2)
        x1, x2, x = (_x(value, low, high) for value in (span.low, span.high, span.value))
        yield f'<line class="{span.style}" x1="{x1:.1f}" x2="{x2:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
        if span.style == "a":
            yield f'<circle class="a" cx="{x:.1f}" cy="{y:.1f}" r="5"/>'
        else:
            yield f'<rect class="b" x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8"/>'


def _x(value: float, low: float, high: float) -> float:
    return _LEFT + (value - low) / (high - low) * (WIDTH - _LEFT - _RIGHT)
