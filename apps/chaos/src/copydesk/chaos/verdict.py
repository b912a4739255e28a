"""What a run must hold, and whether it did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from copydesk.chaos.growth import Growth
from copydesk.chaos.outcome import Outcome


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One bar: its name, whether it `holds`, and the figure in words."""

    name: str
    holds: bool
    said: str


class End(msgspec.Struct, frozen=True, kw_only=True):
    """How the fleet was after the last request: what it still had, who was not in service; None: nobody told."""

    in_flight: int | None
    missing: tuple[str, ...]
    resized: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bars:
    """What is asked for: the least availability, from 0 to 1."""

    availability: float = 0.9999


def judge(
    outcome: Outcome, growths: Sequence[Growth], end: End, bars: Bars, *, own: bool = True
) -> tuple[Check, ...]:
    """Hold a run against the bars; of a fleet that is not this run's `own`, only what can be seen from outside."""
    seen = (_availability(outcome, bars), _once(outcome), _all_back(end))
    return (*seen, _no_growth(growths), _nothing_left(end), _size_kept(end)) if own else seen


def _availability(outcome: Outcome, bars: Bars) -> Check:
    return Check(
        name="availability",
        holds=outcome.offered > 0 and outcome.availability >= bars.availability,
        said=f"{outcome.availability:.4%} answered rightly in time, {bars.availability:.4%} asked for",
    )


def _once(outcome: Outcome) -> Check:
    return Check(
        name="exactly once",
        holds=outcome.once,
        said=f"{outcome.unanswered} accepted and never answered, {outcome.wrong} answered wrongly, "
        f"{outcome.unasked} answers that nobody had asked for",
    )


def _all_back(end: End) -> Check:
    said = f"not in service: {', '.join(end.missing)}" if end.missing else "everybody is in service"
    return Check(name="all back", holds=not end.missing, said=said)


def _no_growth(growths: Sequence[Growth]) -> Check:
    leaks = [growth for growth in growths if growth.leaks]
    grown = "; ".join(f"{one.name} {one.quantity} +{one.grown:,.0f} in {one.seconds:.0f} s" for one in leaks)
    watched = f"{len({growth.pid for growth in growths})} processes were there long enough to tell"
    return Check(name="no growth", holds=not leaks, said=grown or watched)


def _nothing_left(end: End) -> Check:
    left = "the fleet did not say" if end.in_flight is None else f"{end.in_flight} in flight after the last answer"
    return Check(name="nothing left in flight", holds=end.in_flight == 0, said=left)


def _size_kept(end: End) -> Check:
    said = "; ".join(end.resized) or "nobody decided another size"
    return Check(name="size kept", holds=not end.resized, said=said)
