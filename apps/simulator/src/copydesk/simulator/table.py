"""A contest for people: a table in Markdown, which a terminal shows as well as a document."""

from __future__ import annotations

from copydesk.simulator.contest import CLAIRVOYANT, OURS, Contest
from copydesk.simulator.profile import ASSUMED_POD
from copydesk.simulator.score import Score

_HEAD = (
    "policy",
    "violation s",
    "pod hours",
    "moves",
    "cost $",
    "P99 ms",
    "in good seconds",
    "refused",
    "pods",
    "most",
)


def render(found: Contest) -> str:
    """Return the table, and what it says."""
    rows = [_HEAD, *(_row(name, score) for name, score in found.policies.items())]
    widths = [max(len(row[place]) for row in rows) for place in range(len(_HEAD))]
    lines = [_line(row, widths) for row in rows]
    lines.insert(
        1, _line(tuple("-" * (width - (i > 0)) + ":" * (i > 0) for i, width in enumerate(widths)), widths)
    )
    return "\n".join([_about(found), "", *lines, "", *_says(found)])


def _about(found: Contest) -> str:
    measured = f"Model {found.model} on {found.hardware}: a pod holds"
    pod = "A pod is assumed, not measured: it holds" if found.model == ASSUMED_POD.model else measured
    return (
        f"{found.trace}: {found.text}. {found.seconds / 3600.0:.3g} h, up to {found.peak_rate:,.0f} requests/s. "
        f"{pod} {found.pod_rate:,.6g}/s with P99 below {found.slo_ms:,.0f} ms, and starts in "
        f"{found.cold_start_median_s:g} s (nine of ten in {found.cold_start_p90_s:g} s)."
    )


def _row(name: str, score: Score) -> tuple[str, ...]:
    return (
        name,
        f"{score.slo_violation_seconds:,}",
        f"{score.pod_hours:,.1f}",
        f"{score.moves:,}",
        f"{score.cost:,.0f}",
        f"{score.p99_ms:,.0f}",
        f"{score.good_share:.3%}",
        f"{score.shed_share:.3%}",
        f"{score.pods_mean:.1f}",
        f"{score.pods_most}",
    )


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    first, *rest = (cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
    return f"| {' | '.join([first.strip().ljust(widths[0]), *rest])} |"


def _says(found: Contest) -> list[str]:
    ours = found.policies[OURS]
    best = ours.slo_violation_seconds - found.violations_to_best_rival
    alone = ["One pod is enough for all of it; --peak RATE scales the trace up."]
    return [
        *(alone if found.policies[CLAIRVOYANT].pods_most == 1 else []),
        f"{OURS}: {found.hours_to_clairvoyant:.3f} times the pod hours of the {CLAIRVOYANT} optimum; "
        f"the best rival has {best:,} s of violation.",
        f"{ours.good_share:.4%} of the requests came in a second whose P99 was within {found.slo_ms:,.0f} ms; "
        f"{1.0 - ours.late_share:.4%} of the answers were.",
    ]
