"""A contest as a picture: for each policy its demand, its capacity, and its latency, over time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from xml.sax.saxutils import escape

import numpy as np

from copydesk.simulator.contest import Contest
from copydesk.simulator.run import Timeline
from copydesk.simulator.score import violations
from copydesk.simulator.trace import Seconds

_WIDTH, _LEFT, _RIGHT, _TOP = 820, 120, 16, 46
_LOAD, _LATENCY, _GAP = 96, 40, 22
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#1c2733}.h{font-size:14px;font-weight:600}.n{font-weight:600}"
    ".d{fill:#9fb4cc}.c,.l{fill:none;stroke:#1f6feb;stroke-width:1.4}.l{stroke:#7a5af5;stroke-width:1.2}"
    ".s{stroke:#c43b3b;stroke-dasharray:5 4}.v{stroke:#c43b3b;stroke-width:1.5}.g{stroke:#1c273322}"
    ".q{fill:#5b6b7b}@media(prefers-color-scheme:dark){text{fill:#e6edf3}.g{stroke:#e6edf333}"
    ".q{fill:#9fb0c0}.d{fill:#3b4d63}}"
)


def picture(found: Contest, timelines: Mapping[str, Timeline]) -> str:
    """Return an SVG: a panel a policy, with the seconds of violation as red marks between load and latency."""
    height = _TOP + len(timelines) * (_LOAD + _LATENCY + _GAP) + 24
    most = max(float(np.max(one.arrivals)) for one in timelines.values())
    title = f"{found.trace}: {found.text}"
    panels = "".join(
        _panel(name, one, found, 1.9 * most, _TOP + row * (_LOAD + _LATENCY + _GAP))
        for row, (name, one) in enumerate(timelines.items())
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'aria-label="{escape(title)}"><style>{_STYLE}</style>'
        f'<text class="h" x="8" y="18">{escape(title)}</text>'
        f'<text class="q" x="8" y="36">filled: demand; blue: what working pods hold; violet: P99 (log); dashed: '
        f"{found.slo_ms:g} ms; red: violation</text>{panels}{_hours(found.seconds, height)}</svg>\n"
    )


def _panel(name: str, one: Timeline, found: Contest, most: float, top: int) -> str:
    load = top + _LOAD
    demand = _ys(_buckets(one.arrivals, np.max), most, load, _LOAD)
    capacity = _ys(_buckets(one.working * found.pod_rate, np.min), most, load, _LOAD)
    bottom = load + _LATENCY
    latency = _log_ys(_buckets(one.p99_ms, np.max), found.slo_ms, bottom)
    bad = _buckets(violations(one, found.slo_ms).astype(np.float64), np.max)
    marks = "".join(
        f'<path class="v" d="M{x:.1f} {load}v6"/>' for x, hit in zip(_xs(len(bad)), bad, strict=True) if hit
    )
    slo = _log_ys(np.array([found.slo_ms]), found.slo_ms, bottom)[0]
    score = found.policies[name]
    return (
        f'<text class="n" x="8" y="{top + 14}">{escape(name)}</text>'
        f'<text class="q" x="8" y="{top + 32}">{score.slo_violation_seconds:,} s bad</text>'
        f'<text class="q" x="8" y="{top + 48}">{score.pod_hours:,.0f} pod h</text>'
        f'<text class="q" x="8" y="{top + 64}">{score.p99_ms:,.0f} ms P99</text>'
        f'<path class="d" d="M{_LEFT} {load}L{_points(demand)}L{_WIDTH - _RIGHT} {load}Z"/>'
        f'<path class="c" d="M{_points(capacity)}"/>'
        f'<path class="g" d="M{_LEFT} {load}H{_WIDTH - _RIGHT}M{_LEFT} {bottom}H{_WIDTH - _RIGHT}"/>'
        f'<path class="s" d="M{_LEFT} {slo:.1f}H{_WIDTH - _RIGHT}"/>'
        f'<path class="l" d="M{_points(latency)}"/>{marks}'
    )


def _buckets(values: Seconds, worst: Callable[[Seconds], float]) -> Seconds:
    """Return one value a pixel or so: the worst of its seconds, so that no peak is lost."""
    parts = np.array_split(values, min(len(values), _WIDTH - _LEFT - _RIGHT))
    return np.array([worst(part) for part in parts])


def _xs(count: int) -> list[float]:
    return [_LEFT + (_WIDTH - _LEFT - _RIGHT) * place / max(1, count - 1) for place in range(count)]


def _ys(values: Seconds, most: float, bottom: int, height: int) -> list[float]:
    return [bottom - height * min(1.0, value / most) for value in values.tolist()]


def _log_ys(values: Seconds, slo_ms: float, bottom: int) -> list[float]:
    low, high = math.log(slo_ms / 20.0), math.log(slo_ms * 5.0)
    return [
        bottom - _LATENCY * min(1.0, max(0.0, (math.log(max(value, 1e-3)) - low) / (high - low)))
        for value in values.tolist()
    ]


def _points(ys: list[float]) -> str:
    return "L".join(f"{x:.1f} {y:.1f}" for x, y in zip(_xs(len(ys)), ys, strict=True))


def _hours(seconds: int, height: int) -> str:
    unit, name = (3600, "h") if seconds > 3 * 3600 else (60, "min")
    step = max(1, round(seconds / unit / 8))
    ticks = range(0, seconds // unit + 1, step)
    return "".join(
        f'<text class="q" x="{_LEFT + (_WIDTH - _LEFT - _RIGHT) * tick * unit / seconds:.0f}" y="{height - 8}" '
        f'text-anchor="middle">{tick} {name}</text>'
        for tick in ticks
    )
