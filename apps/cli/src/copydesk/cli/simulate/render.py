"""Simulations for people: tables, and a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from copydesk.cli.bench.render import table
from copydesk.cli.simulate.result import OURS, Figures, Part, Simulation

_HEAD = ("rule", "P50 ms", "P99 ms", "P99.9 ms", "failed", "to odd pods", "longest queue")

_ROW, _LEFT, _WIDTH, _TOP = 26, 250, 760, 34


def render(simulation: Simulation) -> str:
    """Return a table for each scenario."""
    return "\n\n".join(_part(part) for part in simulation.parts)


def _part(part: Part) -> str:
    head = (
        f"{part.scenario}: {part.text}. {part.pods} pods of {part.slots} slots, {part.service_ms:g} ms a request, "
        f"{part.gateways} gateways, {part.requests_per_second:,.0f} requests/s ({part.load:.0%})."
    )
    lines = [head, "", table(_HEAD, map(_row, part.figures))]
    if part.p99_to_perfect is not None:
        lines += ["", f"P99 against the best rule with perfect information: x {part.p99_to_perfect:.3f}."]
    return "\n".join(lines)


def _row(one: Figures) -> tuple[str, ...]:
    return (
        one.rule,
        f"{one.p50_ms:.0f}",
        f"{one.p99_ms:,.0f}",
        f"{one.p999_ms:,.0f}",
        f"{one.failed_share:.2%}",
        f"{one.odd_share:.1%}",
        f"{one.longest_queue:,}",
    )


def picture(part: Part) -> str:
    """Return an SVG of P50 and P99 of each rule, on a logarithmic scale."""
    figures = sorted(part.figures, key=lambda one: one.p99_ms)
    top = max(one.p99_ms for one in figures)
    least = min(one.p50_ms for one in figures) / 2.0
    height = _TOP + _ROW * len(figures) + 40
    title = f"{part.text}: P50 (dark) and P99 (light) in ms, {part.pods} pods at {part.load:.0%}"
    bars = "".join(_bars(one, row, least, top) for row, one in enumerate(figures))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" '
        f'font-size="13" role="img" aria-label="{escape(title)}">'
        '<rect width="100%" height="100%" fill="#ffffff"/>'
        f'<text x="10" y="20" font-size="14">{escape(title)}</text>'
        f"{bars}{_axis(least, top, _TOP + _ROW * len(figures))}</svg>\n"
    )


def _bars(one: Figures, row: int, least: float, top: float) -> str:
    y = _TOP + _ROW * row
    long, short = _x(one.p99_ms, least, top), _x(one.p50_ms, least, top)
    light, dark = ("#f2a65a", "#b4530a") if one.rule == OURS else ("#a9bcd0", "#46627f")
    weight = ' font-weight="bold"' if one.rule == OURS else ""
    return (
        f'<text x="{_LEFT - 8}" y="{y + 16}" text-anchor="end"{weight}>{escape(one.rule)}</text>'
        f'<rect x="{_LEFT}" y="{y + 3}" width="{long - _LEFT:.1f}" height="18" fill="{light}"/>'
        f'<rect x="{_LEFT}" y="{y + 3}" width="{short - _LEFT:.1f}" height="18" fill="{dark}"/>'
        f'<text x="{long + 5:.1f}" y="{y + 16}">{one.p99_ms:,.0f}</text>'
    )


def _axis(least: float, top: float, y: int) -> str:
    ticks = [tick for tick in _ticks() if least < tick <= top]
    return "".join(
        f'<line x1="{_x(tick, least, top):.1f}" x2="{_x(tick, least, top):.1f}" y1="{_TOP}" y2="{y}" '
        f'stroke="#00000022"/><text x="{_x(tick, least, top):.1f}" y="{y + 16}" text-anchor="middle" '
        f'fill="#555555">{tick:g}</text>'
        for tick in ticks
    )


def _ticks() -> Sequence[float]:
    return [step * 10.0**power for power in range(5) for step in (1, 2, 5)]


def _x(value: float, least: float, top: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - 70) * math.log(max(value, least) / least) / math.log(top / least)
