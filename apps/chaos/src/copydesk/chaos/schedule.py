"""Which fault strikes whom and when: drawn from a seed before the first of them, so that a run can be repeated."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from copydesk.chaos.kinds import SHAPES, Kind, Track, owner


class Strike(msgspec.Struct, frozen=True, kw_only=True):
    """A fault from second `at` of the run on, for `seconds` (0: a blow); `target` is a pod or another process."""

    at: float
    kind: Kind
    target: str
    seconds: float

    @property
    def ends(self) -> float:
        """The second at which it is over."""
        return self.at + self.seconds


@dataclass(frozen=True, slots=True)
class Pace:
    """How close faults follow each other, in seconds.

    None strikes in the first `lead` (figures of a fleet that is well come first) and none is on in the last
    `tail` (to see that all comes back). Between the end of one and the next of its track are `least_rest` to
    `most_rest`: a killed pod of the default model takes about ten seconds to be back.
    """

    lead: float = 10.0
    tail: float = 25.0
    least_rest: float = 12.0
    most_rest: float = 25.0


def plan_strikes(
    seed: int, seconds: float, pods: Sequence[str], kinds: Sequence[Kind], pace: Pace | None = None
) -> tuple[Strike, ...]:
    """Draw the faults of a run of `seconds`, in the order in which they strike.

    The same arguments give the same faults. Each kind comes once before any comes twice, as far as there is time.
    Faults of pods need two of them: with one, nobody could take its place.
    """
    pace = pace or Pace()
    found: list[Strike] = []
    for track in Track:
        mine = [kind for kind in kinds if SHAPES[kind].track is track]
        if not mine or (track is Track.PODS and len(pods) < 2):
            continue
        rng = random.Random(f"{seed} {track.value}")
        found += _plan_track(rng, seconds, _rounds(mine, rng), pods, pace)
    return tuple(sorted(found, key=lambda strike: strike.at))


def _rounds(kinds: Sequence[Kind], rng: random.Random) -> Iterator[Kind]:
    while True:
        yield from rng.sample(list(kinds), len(kinds))


def _plan_track(
    rng: random.Random, seconds: float, kinds: Iterator[Kind], pods: Sequence[str], pace: Pace
) -> Iterator[Strike]:
    at = pace.lead + rng.uniform(0.0, pace.least_rest)
    for kind in kinds:
        shape = SHAPES[kind]
        lasts = rng.uniform(shape.shortest, shape.longest)
        target = rng.choice(list(pods)) if shape.track is Track.PODS else owner(kind)
        if at + lasts > seconds - pace.tail:
            return
        yield Strike(at=round(at, 3), kind=kind, target=target, seconds=round(lasts, 3))
        at += lasts + rng.uniform(pace.least_rest, pace.most_rest)
