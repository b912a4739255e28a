"""A contest as a picture: for each policy its demand, its capacity, and its latency, over time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from xml.sax.saxutils import escape

import numpy as np

from copydesk.simulator.contest import CLAIRVOYANT, OURS, Contest
from copydesk.simulator.run import Timeline
from copydesk.simulator.score import Score, violations
from copydesk.simulator.trace import Seconds

_WIDTH, _LEFT, _RIGHT, _TOP, _BOTTOM = 980, 236, 44, 104, 40
_LOAD, _SPACE, _LATENCY, _GAP = 86, 8, 34, 20
_PANEL = _LOAD + _SPACE + _LATENCY + _GAP
_PLOT = _WIDTH - _LEFT - _RIGHT
_HIGHEST = 1.9
"""Capacity beyond so many times the highest demand is cut off: it would make all else small."""

_STYLE = (
    "text{font:12px system-ui,-apple-system,'Segoe UI',sans-serif;fill:#25303b}.t{font-size:19px;font-weight:650}"
    ".n{font-size:15px;font-weight:650}.q{fill:#68778a}.a{font-size:10.5px;fill:#8492a3}.ok{fill:#23824b}"
    ".no{fill:#c8323a}.b{font-weight:600}.bg{fill:#fff}.d{fill:#b7c5d6}.m{fill:#e5575e}.g{stroke:#25303b;"
    "stroke-opacity:.09}.x{stroke:#25303b;stroke-opacity:.25}.v{fill:#e5575e;fill-opacity:.16}.s{stroke:#c8323a;"
    "stroke-opacity:.65;stroke-dasharray:4 4}path,line{fill:none}.f{fill-opacity:.16;stroke:none}"
    ".c{stroke-width:1.7;stroke-linejoin:round}.l{stroke:#7353c9;stroke-width:1.3}"
    ".k0{stroke:#d9680f}.k1{stroke:#2f6fb5}.k2{stroke:#2b8a62}.f0{fill:#d9680f}.f1{fill:#2f6fb5}.f2{fill:#2b8a62}"
    "@media(prefers-color-scheme:dark){.bg{fill:#12181f}text{fill:#e3eaf2}.q,.a{fill:#95a5b8}.d{fill:#3c4a5b}"
    ".g{stroke:#fff}.x{stroke:#fff}.ok{fill:#5ccb8b}.no{fill:#ff7b81}.f{fill-opacity:.25}.l{stroke:#a88bf2}}"
)


@dataclass(frozen=True, slots=True)
class _Scale:
    """What all panels have in common: requests a second at the top, and the objective."""

    most: float
    slo_ms: float
    seconds: int

    def load(self, values: Seconds, bottom: float) -> list[float]:
        """Return heights in the plot of load."""
        return [bottom - _LOAD * min(1.0, value / self.most) for value in values.tolist()]

    def latency(self, values: Seconds, bottom: float) -> list[float]:
        """Return heights in the plot of latency, which is logarithmic, from a tenth to thrice the objective."""
        low, high = math.log(self.slo_ms / 10.0), math.log(self.slo_ms * 3.0)
        logs = (math.log(max(value, 1e-3)) for value in values.tolist())
        return [bottom - _LATENCY * min(1.0, max(0.0, (log - low) / (high - low))) for log in logs]


def picture(found: Contest, timelines: Mapping[str, Timeline]) -> str:
    """Return an SVG: a panel a policy, with load above and latency below, and seconds of violation in red."""
    height = _TOP + len(timelines) * _PANEL + _BOTTOM - _GAP
    scale = _Scale(_most(found, timelines), found.slo_ms, found.seconds)
    panels = "".join(
        _panel(name, one, found, scale, _TOP + row * _PANEL) for row, (name, one) in enumerate(timelines.items())
    )
    title = f"{found.trace}: {found.text}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'aria-label="{escape(title)}"><style>{_STYLE}</style>'
        f'<rect class="bg" width="100%" height="100%" rx="10"/>'
        f"{_heading(found)}{_clock(found.seconds, height)}{panels}</svg>\n"
    )


def _most(found: Contest, timelines: Mapping[str, Timeline]) -> float:
    demand = max(float(one.arrivals.max()) for one in timelines.values())
    capacity = max(float(one.working.max()) * found.pod_rate for one in timelines.values())
    return 1.04 * min(_HIGHEST * demand, max(demand, capacity))


def _heading(found: Contest) -> str:
    about = (
        f"up to {found.peak_rate:,.0f} requests/s; a pod holds {found.pod_rate:,.6g}/s, and half of the new ones "
        f"start in {found.cold_start_median_s:g} s"
    )
    keys = (
        ('<rect class="d" x="{x}" y="{y}" width="16" height="9" rx="2"/>', "demand", 84),
        ('<rect class="m" x="{x}" y="{y}" width="16" height="9" rx="2"/>', "more than pods hold", 158),
        ('<path class="c k0" d="M{x} {m}h16"/>', "capacity, and what is spare", 200),
        ('<path class="l" d="M{x} {m}h16"/>', "P99", 64),
        ('<path class="s" d="M{x} {m}h16"/>', f"objective, {found.slo_ms:,.0f} ms", 158),
        ('<rect class="v" x="{x}" y="{y}" width="16" height="9"/>', "violation", 80),
    )
    drawn, x = [], 24
    for key, text, width in keys:
        drawn.append(key.format(x=x, y=75, m=79.5) + f'<text class="q" x="{x + 21}" y="84">{escape(text)}</text>')
        x += width
    title = f"{found.trace}: {found.text}"
    return (
        f'<text class="t" x="24" y="34">{escape(title)}</text><text class="q" x="24" y="55">{escape(about)}</text>'
        f"{''.join(drawn)}"
    )


def _panel(name: str, one: Timeline, found: Contest, scale: _Scale, top: int) -> str:
    load, bottom = top + _LOAD, top + _LOAD + _SPACE + _LATENCY
    colour = 0 if name == OURS else 2 if name == CLAIRVOYANT else 1
    pods_hold = one.working * found.pod_rate
    arrivals, held = _buckets(one.arrivals, np.max), _buckets(pods_hold, np.min)
    demand, capacity = scale.load(arrivals, load), scale.load(held, load)
    met = scale.load(arrivals - _buckets(np.maximum(0.0, one.arrivals - pods_hold), np.max), load)
    above = [min(pair) for pair in zip(demand, capacity, strict=True)]
    latency = scale.latency(_buckets(one.p99_ms, np.max), bottom)
    slo = scale.latency(np.array([scale.slo_ms]), bottom)[0]
    return (
        f"{_figures(name, found.policies[name], found, top)}{_axes(scale, top)}"
        f"{_bands(_buckets(violations(one, scale.slo_ms).astype(np.float64), np.max), top, bottom)}"
        f'<path class="f f{colour}" d="{_between(above, demand)}"/>'
        f'<path class="m" d="{_area(demand, load)}"/><path class="d" d="{_area(met, load)}"/>'
        f'<path class="c k{colour}" d="{_line(capacity)}"/>'
        f'<path class="s" d="M{_LEFT} {slo:.1f}h{_PLOT}"/><path class="l" d="{_line(latency)}"/>'
    )


def _figures(name: str, score: Score, found: Contest, top: int) -> str:
    bad = score.slo_violation_seconds
    least = max(1e-9, found.policies[CLAIRVOYANT].pod_hours)
    lines = (
        ("no b" if bad else "ok b", f"{bad:,} s of violation" if bad else "no violation"),
        ("", f"{score.pod_hours:,.0f} pod hours, {score.pod_hours / least:.2f} x the least"),
        ("q", f"{score.moves:,} moves, at most {score.pods_most:,} pods"),
        ("q", f"P99 {score.p99_ms:,.0f} ms, {score.shed_share:.2%} refused"),
    )
    return f'<text class="n" x="24" y="{top + 14}">{escape(name)}</text>' + "".join(
        f'<text class="{kind}" x="24" y="{top + 36 + 19 * row}">{text}</text>'
        for row, (kind, text) in enumerate(lines)
    )


def _axes(scale: _Scale, top: int) -> str:
    load, bottom = top + _LOAD, top + _LOAD + _SPACE + _LATENCY
    rates = np.array(_round_rates(scale.most))
    ticks = "".join(
        f'<path class="g" d="M{_LEFT} {y:.1f}h{_PLOT}"/>'
        f'<text class="a" x="{_WIDTH - _RIGHT + 4}" y="{y + 3.5:.1f}">{_short(rate)}</text>'
        for rate, y in zip(rates.tolist(), scale.load(rates, load), strict=True)
    )
    return f'{ticks}<path class="x" d="M{_LEFT} {load}h{_PLOT}"/><path class="x" d="M{_LEFT} {bottom}h{_PLOT}"/>'


def _round_rates(most: float) -> list[float]:
    step = 10.0 ** math.floor(math.log10(most))
    step = next(size for size in (step / 5.0, step / 2.0, step, 2.0 * step, 5.0 * step) if most / size < 4.0)
    return [step * number for number in range(1, int(most / step) + 1)]


def _short(rate: float) -> str:
    return f"{rate / 1e6:g}M" if rate >= 1e6 else f"{rate / 1e3:g}K" if rate >= 1e3 else f"{rate:g}"


def _bands(bad: Seconds, top: int, bottom: int) -> str:
    """Return a rectangle for each spell of violation, none thinner than can be seen."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0.0], bad, [0.0]))))
    unit = _PLOT / max(1, len(bad))
    return "".join(
        f'<rect class="v" x="{_LEFT + start * unit:.1f}" y="{top}" width="{max(2.0, (end - start) * unit):.1f}" '
        f'height="{bottom - top}"/>'
        for start, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
    )


def _buckets(values: Seconds, worst: Callable[[Seconds], float]) -> Seconds:
    """Return a value for each pixel or two: the worst of its seconds, so that no peak is lost."""
    parts = np.array_split(values, min(len(values), 2 * _PLOT // 3))
    return np.array([worst(part) for part in parts])


def _points(ys: list[float]) -> list[str]:
    """Return the corners of a line; in between, where nothing changes, no points are needed."""
    unit = _PLOT / max(1, len(ys) - 1)
    shown = [round(y, 1) for y in ys]
    return [
        f"{_LEFT + place * unit:.1f} {y:g}"
        for place, y in enumerate(shown)
        if place in (0, len(shown) - 1) or not shown[place - 1] == y == shown[place + 1]
    ]


def _line(ys: list[float]) -> str:
    return "M" + "L".join(_points(ys))


def _area(ys: list[float], bottom: int) -> str:
    return f"M{_LEFT} {bottom}L{'L'.join(_points(ys))}L{_WIDTH - _RIGHT} {bottom}Z"


def _between(upper: list[float], lower: list[float]) -> str:
    return f"M{'L'.join(_points(upper))}L{'L'.join(reversed(_points(lower)))}Z"


def _clock(seconds: int, height: int) -> str:
    unit, name = (3600, "h") if seconds > 3 * 3600 else (60, "min") if seconds > 180 else (1, "s")
    step = next(size for size in (1, 2, 3, 5, 6, 10, 12, 24, 48, 96, 168, 336) if seconds / unit / size <= 12)
    lines = []
    for tick in range(0, seconds // unit + 1, step):
        x = _LEFT + _PLOT * tick * unit / seconds
        lines.append(
            f'<path class="g" d="M{x:.1f} {_TOP}V{height - _BOTTOM}"/>'
            f'<text class="a" x="{x:.1f}" y="{height - 20}" text-anchor="middle">{tick} {name}</text>'
        )
    return "".join(lines)
