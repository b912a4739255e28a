"""What to do when a child process ends, and in which order to stop a fleet: decisions over plain data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from copydesk.cli.fleet.plan import ChildSpec, Role, Vital
from copydesk.common.backoff import backoff_seconds
from copydesk.common.process import describe_exit

STOP_ORDER = (Role.AUTOSCALER, Role.GATEWAY, Role.POD, Role.EDS, Role.REDIS, Role.NATS)
"""From the front to the back: a gateway that drains needs its pods, pods that drain tell it through NATS.

Before them all the autoscaler, which has nothing to decide of a fleet that ends.
"""


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before a restart, in seconds.

    The first restart comes at once for a person's eyes, since most deaths are single ones; each further one
    waits twice as long, up to `cap`. `healthy_after` seconds in service clear the account.
    `early_limit` deaths without ever having been in service mean that it cannot start at all.
    """

    first: float = 0.2
    cap: float = 15.0
    healthy_after: float = 30.0
    early_limit: int = 5

    def delay(self, failures: int, jitter: float) -> float:
        """Wait before restart number `failures` (1 is the first); `jitter` in [0, 1) takes off up to half.

        The jitter keeps children that died together from coming back together.
        """
        return backoff_seconds(failures - 1, first=self.first, cap=self.cap, share=1.0 - jitter)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child ended: its code (negative: the signal that killed it) and its history.

    `failures` counts its deaths since it was last healthy, without this one; `healthy_s` is how long it was in
    service this time, 0 if it never got there; `ever_up` says whether any earlier run did.
    """

    code: int
    failures: int
    healthy_s: float
    ever_up: bool


@dataclass(frozen=True, slots=True)
class Restart:
    """Start it again after `delay` seconds; `failures` is the account to keep."""

    delay: float
    failures: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Stop the fleet: starting this child again cannot help. `exit_code` is for the whole command."""

    exit_code: int
    reason: str


def decide(
    ended: Ended, fatal_exit: int | None, backoff: Backoff, jitter: float, vital: Vital = Vital.ALWAYS
) -> Restart | GiveUp:
    """Say what follows from the end of a child that nobody asked to stop."""
    how = describe_exit(ended.code)
    matters = is_vital(vital, ever_up=ended.ever_up)
    if matters and fatal_exit is not None and ended.code == fatal_exit:
        return GiveUp(2, f"{how}: a setting or the model is wrong")
    failures = 1 if ended.healthy_s >= backoff.healthy_after else ended.failures + 1
    if matters and not ended.ever_up and failures >= backoff.early_limit:
        return GiveUp(1, f"{how}, {failures} times in a row without ever being up")
    return Restart(backoff.delay(failures, jitter), failures)


def is_vital(vital: Vital, *, ever_up: bool) -> bool:
    """Say whether the fleet is over when a child that was `ever_up`, or not, cannot run."""
    return vital is Vital.ALWAYS or (vital is Vital.AT_FIRST and not ever_up)


@dataclass(frozen=True, slots=True)
class StopPhase:
    """Children that are stopped side by side, and how long to wait before they are killed."""

    names: tuple[str, ...]
    grace: float


def stop_phases(specs: Iterable[ChildSpec]) -> tuple[StopPhase, ...]:
    """Order the stop of a fleet: each phase begins when the one before it has ended."""
    everyone = tuple(specs)
    groups = ([spec for spec in everyone if spec.role is role] for role in STOP_ORDER)
    return tuple(
        StopPhase(tuple(spec.name for spec in group), max(spec.grace for spec in group))
        for group in groups
        if group
    )
