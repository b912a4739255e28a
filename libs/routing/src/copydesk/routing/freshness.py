"""Which membership snapshot to believe, when several publishers, late messages and stepped clocks are possible."""

from __future__ import annotations

import enum
from dataclasses import dataclass

SILENCE_SECONDS = 10.0
"""Five periods of the publisher's full snapshot (2 s): after that, nobody speaks for the epoch any more."""


class Verdict(enum.Enum):
    """What to do with a snapshot: take it over, note that the present one still holds, or ignore it."""

    APPLY = "apply"
    CONFIRM = "confirm"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True)
class Held:
    """The snapshot in use: its version, and when its epoch was last heard (in the caller's monotonic seconds)."""

    epoch: int
    generation: int
    heard_at: float


def judge(
    held: Held | None, epoch: int, generation: int, now: float, *, silence: float = SILENCE_SECONDS
) -> Verdict:
    """Decide on a snapshot: the newest (epoch, generation) wins.

    An epoch is a publisher's start in wall-clock time, so a clock that was set back makes a new publisher look
    old. Hence a lower epoch is believed once nothing has come from the present one for `silence` seconds. No
    other age is looked at: the wall clocks of two machines need not agree.
    """
    if held is None or epoch > held.epoch:
        return Verdict.APPLY
    if epoch < held.epoch:
        return Verdict.APPLY if now - held.heard_at > silence else Verdict.IGNORE
    if generation > held.generation:
        return Verdict.APPLY
    return Verdict.CONFIRM if generation == held.generation else Verdict.IGNORE


def hear(held: Held | None, epoch: int, generation: int, now: float, *, silence: float = SILENCE_SECONDS) -> Held:
    """Return what is held after a snapshot: the version that `judge` prefers, and when its epoch was heard."""
    if held is None or judge(held, epoch, generation, now, silence=silence) is Verdict.APPLY:
        return Held(epoch, generation, now)
    if epoch == held.epoch:
        return Held(held.epoch, held.generation, now)
    return held
