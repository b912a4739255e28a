"""The quick loop, for a capacity that is assumed: what the fleet shows disproves it.

A certificate is wrong by a tenth, an assumption by a factor of five. So here the target is halved, every ten
seconds, while pods that do no more than is asked of them miss the objective, or requests wait or are refused.
What counts is what pods *do*, in answers a second, since a pod that is overwhelmed has many requests and answers
few. The fall ends a little below what full pods were seen to do, and goes on to there when more pods have ended
the trouble, unless as much is then done without any: that was a hiccup.

It rises again with care: to what has just failed in steps of a tenth, each after two minutes at the target far
within the objective; beyond that, each after half an hour. A step that fails is taken back, no more: what has held
before holds. It never rises above what was assumed, since beyond lies what nobody has even claimed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from copydesk.autoscaler.refinement import ABOVE_TARGET, AT_TARGET, FAR_WITHIN, UP_AFTER_S, Refinement, since

HALF, BELOW_SEEN, SAME = 0.5, 0.9, 0.95
FALL_AFTER_S = 10.0
RISE, RISE_AFTER_S = 1.1, 120.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is seen of the pods at one moment.

    `load` is what a pod has, over what the target asks of it, `done` what it does over that (None: not known);
    `troubled` says that requests wait or were refused, `known` that all reports are in, `ready` the pods at work.
    """

    load: float
    done: float | None
    p99_ms: float | None
    slo_ms: float
    troubled: bool
    known: bool
    ready: int


def disprove(before: Refinement, seen: Evidence, least: float, now: float) -> Refinement:
    """Return the factor on the assumption after one more observation, `least` to 1.

    What is not known teaches nothing. Pods that have just joined say nothing yet: others still have their work.
    """
    joined, ready = seen.ready > before.ready, seen.ready
    if not seen.known or ready == 0 or joined or seen.done is None or seen.p99_ms is None:
        return replace(before, ready=ready, bad_since=None, good_since=None)
    missed = seen.p99_ms > seen.slo_ms or seen.troubled
    bad = missed and seen.done <= ABOVE_TARGET
    good = not missed and seen.p99_ms < FAR_WITHIN * seen.slo_ms and seen.load >= AT_TARGET
    found = replace(
        before,
        ready=ready,
        full=_full(before, seen.done * before.factor, bad=bad, missed=missed),
        bad_since=since(before.bad_since, bad, now),
        good_since=since(before.good_since, good, now),
    )
    if _falls(found, now):
        return _fallen(found, least, now)
    if found.good_since is not None and now - found.good_since >= RISE_AFTER_S:
        return _risen(found, now)
    return found


def _full(before: Refinement, done: float, *, bad: bool, missed: bool) -> float:
    """Return the most that full pods did, of what was assumed; 0 once as much is done without trouble."""
    if bad:
        return max(before.full, done)
    return 0.0 if not missed and done >= SAME * before.full else before.full


def _falls(found: Refinement, now: float) -> bool:
    if found.bad_since is not None and now - found.bad_since >= FALL_AFTER_S:
        return True
    # Pods that have joined since end the trouble, and with it the evidence; yet one pod was full with that much.
    begun = found.failed is not None and found.changed_at is not None and now - found.changed_at >= FALL_AFTER_S
    return begun and found.bad_since is None and 0.0 < BELOW_SEEN * found.full < found.factor


def _fallen(found: Refinement, least: float, now: float) -> Refinement:
    """Go back to what held before; where that is what has failed, to a half, or just below what full pods did."""
    back = 0.0 < found.held < found.factor
    aim = BELOW_SEEN * found.full
    lower = found.held if back else min(BELOW_SEEN * found.factor, max(HALF * found.factor, aim))
    factor = min(found.factor, max(least, lower))
    return replace(
        found,
        factor=factor,
        held=found.held if back else 0.0,
        failed=found.factor,
        full=0.0 if back or factor <= aim else found.full,
        bad_since=None,
        good_since=None,
        changed_at=now,
    )


def _risen(found: Refinement, now: float) -> Refinement:
    """Take a step; one to what has failed before only after half an hour, and it is forgotten once that held."""
    factor = min(1.0, found.factor * RISE)
    failed = found.failed if found.failed is not None and found.factor < found.failed else None
    if failed is not None and factor >= failed and now - (found.good_since or now) < UP_AFTER_S:
        return found
    if factor <= found.factor:
        return found
    return replace(
        found, factor=factor, held=found.factor, failed=failed, full=0.0, good_since=now, changed_at=now
    )
