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


def is_hung(patience: Patience, *, started: float, answered: float | None, now: float) -> bool:
    """Say whether a child that started and last answered at those times has been silent for too long."""
    if answered is None:
        return now - started > patience.start
    return now - answered > patience.answer


def pod_state(*, draining: bool, engine_answers: bool, workers: Iterable[EndpointState | None]) -> EndpointState:
    """Return the pod's state from what its children last said; None stands for one that does not answer.

    One ready worker is enough: connections made from now on end up at those that accept.
    """
    if draining:
        return EndpointState.DRAINING
    if engine_answers and EndpointState.READY in tuple(workers):
        return EndpointState.READY
    return EndpointState.WARMING
