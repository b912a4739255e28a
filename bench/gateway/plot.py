"""A bar chart of the figures, as SVG: no library needed, and readable in light and in dark."""

from __future__ import annotations

from xml.sax.saxutils import escape

from bench.gateway.figures import Figures

WIDTH, LABEL, BAR, GAP, HEAD = 760, 230, 22, 8, 44

_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#1c2733}.h{font-weight:600}.b{fill:#8aa0b4}.o{fill:#1f6feb}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.b{fill:#5b6b7a}.o{fill:#4d94ff}}"
)


def svg(by_pods: dict[int, Figures], ours: str) -> str:
    """Draw a chart for each number of pods; bars whose names begin with `ours` stand out."""
    parts: list[str] = []
    top = 0
    for pods, found in sorted(by_pods.items()):
        parts += _chart(
            found.requests_per_cpu_second, f"Requests a CPU second of the proxy, {pods} pods", ours, top
        )
        top += HEAD + len(found.requests_per_cpu_second) * (BAR + GAP)
    height = top + GAP
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">'
    return "\n".join([head, f"<style>{_STYLE}</style>", *parts, "</svg>", ""])


def _chart(rates: dict[str, float], title: str, ours: str, top: int) -> list[str]:
    scale = (WIDTH - LABEL - 90) / max(rates.values())
    lines = [f'<text class="h" x="8" y="{top + 26}">{escape(title)}</text>']
    y = top + HEAD
    for name, rate in sorted(rates.items(), key=lambda item: -item[1]):
        kind = "o" if name.startswith(ours) else "b"
        length = rate * scale
        lines += [
            f'<text x="8" y="{y + 16}">{escape(name)}</text>',
            f'<rect class="{kind}" x="{LABEL}" y="{y}" width="{length:.1f}" height="{BAR}" rx="3"/>',
            f'<text x="{LABEL + length + 8:.1f}" y="{y + 16}">{rate:,.0f}</text>',
        ]
        y += BAR + GAP
    return lines
