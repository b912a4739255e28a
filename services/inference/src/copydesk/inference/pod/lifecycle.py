"""The supervisor's decisions: when a child is restarted, when it hangs, and what state the pod is in.

Pure functions over data; the supervisor passes in time and chance.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from copydesk.common.backoff import backoff_seconds
from copydesk.common.messages import EndpointState

PERMANENT_FAILURE = 2
"""The exit code of a child that would fail in the same way again: a bad setting, a bad model."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before the next restart, in seconds.

    The first restart is nearly immediate, since most deaths are single ones and users wait; then the delay
    doubles up to `cap`. A child that lived for `healthy_after` is forgiven its past.
    """

    first: float = 0.1
    cap: float = 10.0
    healthy_after: float = 30.0


@dataclass(frozen=True, slots=True)
class Restart:
    """A restart after `delay` seconds, the `failures`-th in a row."""

    failures: int
    delay: float


def plan_restart(policy: Backoff, *, failures: int, lived: float, chance: float) -> Restart:
    """Plan the restart of a child that lived for `lived` seconds and had died `failures` times in a row before.

    `chance`, in [0, 1), takes up to half of the delay away, so that pods that died together do not return
    together.
    """
    in_a_row = 1 if lived >= policy.healthy_after else failures + 1
    delay = backoff_seconds(in_a_row - 1, first=policy.first, cap=policy.cap, share=1.0 - chance)
    return Restart(failures=in_a_row, delay=delay)


@dataclass(frozen=True, slots=True)
class Patience:
    """How many seconds a child may be silent: until its first answer, and after any other."""

    start: float
    answer: float

    def limit(self, *, answered: bool) -> float:
        """Return the one that applies to a child that has, or has not, answered yet."""
        return self.answer if answered else self.start


def silence_after(silent: float, *, passed: float, expected: float) -> float:
    """Return for how long a peer has been silent, after one more wait in vain that should take `expected` seconds.

    Where more than that passed, the one who waits stood still meanwhile, and most likely the peer with it.
    """
    return silent + min(passed, expected)


def is_hung(patience: Patience, *, answered: bool, silent: float) -> bool:
    """Say whether a child, which has answered before or not, has been silent for too many seconds."""
    return silent > patience.limit(answered=answered)


def pod_state(*, draining: bool, engine_answers: bool, workers: Iterable[EndpointState | None]) -> EndpointState:
    """Return the pod's state from what its children last said; None stands for one that does not answer.

    One ready worker is enough: connections made from now on end up at those that accept.
    """
    if draining:
        return EndpointState.DRAINING
    if engine_answers and EndpointState.READY in tuple(workers):
        return EndpointState.READY
    return EndpointState.WARMING
