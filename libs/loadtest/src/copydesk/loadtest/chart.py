"""Line charts as SVG: no library needed, and readable in light and in dark."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 760, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 18, 44, 46
_TICKS = 5
_ROOM = 1.5
"""Above a level that is marked, for its name."""
_COLOURS = "abcd"
_LOW = 12
"""How high a low band is."""
_THIN = 2.0
"""How wide at the least: what has no length must be seen too."""

STYLE = (
    ".chart text{font:12px system-ui,sans-serif;fill:#1c2733}.chart .h{font-size:14px;font-weight:600}"
    ".chart .grid{stroke:#1c273322}.chart .mark{stroke:#c43b3b;stroke-dasharray:5 4}.chart .mt{fill:#c43b3b}"
    ".chart rect.band{fill:#c43b3b33}.chart rect.low{fill:#7a5af899}"
    ".chart polyline{fill:none;stroke-width:1.8}"
    ".chart polyline.a{stroke:#1f6feb}.chart polyline.b{stroke:#d97706}.chart polyline.c{stroke:#7a8794}"
    ".chart polyline.d{stroke:#b42dbd}"
    ".chart text,.chart circle{stroke:none}"
    ".chart text.a,.chart circle.a{fill:#1f6feb}.chart text.b,.chart circle.b{fill:#d97706}"
    ".chart text.c,.chart circle.c{fill:#7a8794}.chart text.d,.chart circle.d{fill:#b42dbd}"
    "@media(prefers-color-scheme:dark){.chart text{fill:#e6edf3}.chart .grid{stroke:#e6edf333}}"
)


@dataclass(frozen=True, slots=True)
class Line:
    """A named line through points (x, y); a y of None is a gap. `dots` shows the points."""

    name: str
    points: Sequence[tuple[float, float | None]]
    dots: bool = False


@dataclass(frozen=True, slots=True)
class Band:
    """A span of x that is shaded, with its name where the mouse rests on it; a `low` one only along the axis."""

    start: float
    end: float
    name: str
    low: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """What a chart shows. `level` and `moment` are marked by lines across, with their names, `bands` shaded."""

    title: str
    x_title: str
    lines: Sequence[Line]
    log_y: bool = False
    level: tuple[float, str] | None = None
    moment: tuple[float, str] | None = None
    least_y: float = 0.0
    bands: Sequence[Band] = ()


def svg(chart: Chart, *, standalone: bool = True) -> str:
    """Draw a chart; `standalone` brings its style along, else the page that holds it must have `STYLE`."""
    scale = _Scale.of(chart)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(chart.title, _QUOTES)}">',
        f"<style>{STYLE}</style>" if standalone else "",
        f'<text class="h" x="8" y="20">{escape(chart.title)}</text>',
        f'<text x="{WIDTH - _RIGHT}" y="{HEIGHT - 8}" text-anchor="end">{escape(chart.x_title)}</text>',
        *_bands(chart.bands, scale),
        *_y_axis(scale),
        *_x_axis(scale),
        *_marks(chart, scale),
        *(part for i, line in enumerate(chart.lines) for part in _line(line, _COLOURS[i % 4], scale)),
        *_legend(chart.lines),
        "</svg>",
    ]
    return "\n".join(part for part in parts if part) + "\n"


_QUOTES = {'"': "&quot;"}


@dataclass(frozen=True, slots=True)
class _Scale:
    """From values to places on the paper."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float
    log_y: bool

    @classmethod
    def of(cls, chart: Chart) -> _Scale:
        xs = [x for line in chart.lines for x, _ in line.points]
        ys = [y for line in chart.lines for _, y in line.points if y is not None]
        if chart.level is not None:
            ys.append(_ROOM * chart.level[0])
        x_low, x_high = min(xs, default=0.0), max(xs, default=1.0)
        y_high = max([*ys, chart.least_y], default=1.0)
        if chart.log_y:
            positive = [y for y in ys if y > 0]
            y_low = 10.0 ** math.floor(math.log10(min(positive, default=1.0)))
            y_high = max(y_high, y_low * 10.0)
        else:
            y_low, y_high = 0.0, y_high * 1.05 or 1.0
        return cls(min(0.0, x_low), x_high if x_high > 0 else 1.0, y_low, y_high, chart.log_y)

    def x(self, value: float) -> float:
        part = (value - self.x_low) / (self.x_high - self.x_low or 1.0)
        return _LEFT + part * (WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        if self.log_y:
            part = math.log(max(value, self.y_low) / self.y_low) / math.log(self.y_high / self.y_low)
        else:
            part = (value - self.y_low) / (self.y_high - self.y_low)
        return HEIGHT - _BOTTOM - part * (HEIGHT - _TOP - _BOTTOM)


def ticks(low: float, high: float) -> list[float]:
    """Return round values from `low` to `high`: about five, a 1, 2 or 5 with zeros apart."""
    span = high - low
    if not (math.isfinite(span) and span > 0):
        return [low]
    raw = span / _TICKS
    power = 10.0 ** math.floor(math.log10(raw))
    step = next((factor * power for factor in (1, 2, 5) if factor * power >= raw), 10 * power)
    first = math.ceil(low / step)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
    return [tick for tick in found if low <= tick <= high * 1.0001]


def _bands(bands: Iterable[Band], scale: _Scale) -> Iterable[str]:
    bottom = HEIGHT - _BOTTOM
    for band in bands:
        left, right = scale.x(band.start), scale.x(min(band.end, scale.x_high))
        top = bottom - _LOW if band.low else _TOP
        yield (
            f'<rect class="{"low" if band.low else "band"}" x="{left:.1f}" y="{top}" height="{bottom - top}" '
            f'width="{max(right - left, _THIN):.1f}"><title>{escape(band.name)}</title></rect>'
        )


def _y_axis(scale: _Scale) -> Iterable[str]:
    for tick in (_log_ticks if scale.log_y else ticks)(scale.y_low, scale.y_high):
        y = scale.y(tick)
        yield f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_short(tick)}</text>'


def _x_axis(scale: _Scale) -> Iterable[str]:
    y = HEIGHT - _BOTTOM + 18
    for tick in ticks(scale.x_low, scale.x_high):
        yield f'<text x="{scale.x(tick):.1f}" y="{y}" text-anchor="middle">{_short(tick)}</text>'


def _marks(chart: Chart, scale: _Scale) -> Iterable[str]:
    """Draw the lines across; their names stand on different sides, so that neither lies on the other."""
    x = WIDTH if chart.moment is None else scale.x(chart.moment[0])
    early = x < WIDTH / 2
    if chart.level is not None:
        y = scale.y(chart.level[0])
        yield f'<line class="mark" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield _mark(WIDTH - _RIGHT if early else _LEFT + 6, y - 5, chart.level[1], ends=early)
    if chart.moment is not None:
        yield f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}"/>'
        yield _mark(x + 6 if early else x - 6, _TOP + 12, chart.moment[1], ends=not early)


def _mark(x: float, y: float, name: str, *, ends: bool) -> str:
    """Write the name of a mark, which begins at `x` or ends there."""
    anchor = "end" if ends else "start"
    return f'<text class="mt" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(name)}</text>'


def _line(line: Line, colour: str, scale: _Scale) -> Iterable[str]:
    for piece in _pieces(line.points):
        places = [(scale.x(x), scale.y(y)) for x, y in piece]
        joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        yield f'<polyline class="{colour}" points="{joined}"/>'
        if line.dots or len(piece) == 1:
            yield from (f'<circle class="{colour}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in places)


def _pieces(points: Sequence[tuple[float, float | None]]) -> Iterable[list[tuple[float, float]]]:
    piece: list[tuple[float, float]] = []
    for x, y in points:
        if y is not None:
            piece.append((x, y))
        elif piece:
            yield piece
            piece = []
    if piece:
        yield piece


def _legend(lines: Sequence[Line]) -> Iterable[str]:
    x = _LEFT
    for i, line in enumerate(lines):
        yield f'<text class="{_COLOURS[i % 4]}" x="{x}" y="{_TOP - 8}">{escape(line.name)}</text>'
        x += 8 * len(line.name) + 20


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"
