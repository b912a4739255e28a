"""What is simulated: a fleet, its load, and what goes wrong with it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scenario:
    """A fleet of `pods` with `slots` each, in which a request takes `service_ms` on average, behind `gateways`.

    `load` is the part of what all pods together could do if none were odd. `slow` of them (a share) take
    `slow_factor` times as long. After half of `seconds` something happens: `joining` more pods come, that are five
    times as slow until they have served a hundred requests; or all pods of one of `zones` are lost. `failing` pods
    fail each request in a millisecond, all the time. What happens in the first third is not counted.
    """

    name: str
    text: str
    pods: int = 170
    gateways: int = 32
    slots: int = 32
    service_ms: float = 250.0
    load: float = 0.8
    seconds: float = 6.0
    slow: float = 0.0
    slow_factor: float = 2.0
    failing: int = 0
    joining: int = 0
    zones: int = 0

    @property
    def rate(self) -> float:
        """Requests a second."""
        return self.load * self.pods * self.slots * 1000.0 / self.service_ms

    @property
    def warm(self) -> float:
        """Seconds that are not counted."""
        return self.seconds / 3.0

    @property
    def turn(self) -> float:
        """When pods join or are lost, in seconds."""
        return self.seconds / 2.0


SLOW = Scenario("slow", "every tenth pod is twice as slow", slow=0.1)
FAILING = Scenario("failing", "three pods fail each request in a millisecond", failing=3, seconds=4.0)
JOINING = Scenario("joining", "twenty cold pods join", joining=20, seconds=4.0)
LOST_ZONE = Scenario("lost-zone", "one of three zones is lost", pods=200, zones=3, load=0.6, seconds=4.0)

SCENARIOS = (SLOW, FAILING, JOINING, LOST_ZONE)
