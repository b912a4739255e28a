"""What a policy of scaling is given, and asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from copydesk.autoscaler.observation import Pod
from copydesk.simulator.fluid import Flow


@dataclass(frozen=True, slots=True)
class View:
    """The fleet after a second: what flowed, the pods asked for, those that are there and those that work."""

    flow: Flow
    size: int
    pods: tuple[Pod, ...]
    count: int
    ready: int


class Policy(Protocol):
    """A way to decide how many pods there shall be."""

    def decide(self, view: View, now: float) -> int:
        """Return the size; called after each second, whether or not the policy looks that often."""
