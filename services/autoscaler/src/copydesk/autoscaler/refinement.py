"""The slow loop: what the certificate promised, corrected by what the fleet shows.

Texts get longer, a neighbour takes the memory's bandwidth, a driver is updated: the certified target may be too
high, and then the objective is missed while every pod does only what it should be able to do. Then the target
falls at once, and again each half minute while that goes on. It rises again in small steps, each after half an
hour in which pods had what the target asks of them and latency was far within the objective.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

LEAST, MOST = 0.6, 1.1
DOWN, DOWN_AFTER_S, DOWN_PAUSE_S = 0.9, 10.0, 30.0
UP, UP_AFTER_S = 0.02, 1800.0
FAR_WITHIN = 0.6
AT_TARGET, ABOVE_TARGET = 0.9, 1.05


@dataclass(frozen=True, slots=True)
class Refinement:
    """The factor on the target, how long the evidence for either change has lasted, and when it last changed.

    The last four are for a capacity that is assumed (`disproof`): the factor that last held (0: none), the one
    that last failed, the most that full pods did, of what was assumed (0: not known), and the pods at work.
    """

    factor: float = 1.0
    bad_since: float | None = None
    good_since: float | None = None
    changed_at: float | None = None
    held: float = 0.0
    failed: float | None = None
    full: float = 0.0
    ready: int = 0


def refine(
    known: Refinement, *, load: float, p99_ms: float | None, slo_ms: float, clean: bool, now: float
) -> Refinement:
    """Return the refinement after one more observation.

    `load` is what a pod has over what the target asks of it; `clean` says that nothing waited or was refused and
    all reports are in. Without a latency, or unless clean, nothing is learned.
    """
    if p99_ms is None or not clean:
        return _keep(known, bad=None, good=None)
    bad = p99_ms > slo_ms and load <= ABOVE_TARGET
    good = p99_ms < FAR_WITHIN * slo_ms and load >= AT_TARGET
    known = _keep(known, bad=since(known.bad_since, bad, now), good=since(known.good_since, good, now))
    if known.bad_since is not None and now - known.bad_since >= DOWN_AFTER_S and _rested(known, now):
        return replace(known, factor=max(LEAST, known.factor * DOWN), changed_at=now, good_since=None)
    if known.good_since is not None and now - known.good_since >= UP_AFTER_S:
        return replace(known, factor=min(MOST, known.factor + UP), changed_at=now, good_since=now)
    return known


def _keep(known: Refinement, *, bad: float | None, good: float | None) -> Refinement:
    if known.bad_since == bad and known.good_since == good:
        return known
    return replace(known, bad_since=bad, good_since=good)


def since(before: float | None, holds: bool, now: float) -> float | None:
    """Return since when it holds, None if it does not."""
    if not holds:
        return None
    return now if before is None else before


def _rested(known: Refinement, now: float) -> bool:
    return known.changed_at is None or now - known.changed_at >= DOWN_PAUSE_S
