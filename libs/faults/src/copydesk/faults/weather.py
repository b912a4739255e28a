"""How a link is at a moment, one condition a way. Pure data; `FaultProxy` makes it true."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field

from copydesk.common.errors import CopydeskError


class Way(enum.Enum):
    """The two ways of a connection: from who opened it, and back."""

    FORTH = "forth"
    BACK = "back"


class WeatherError(CopydeskError):
    """A condition that cannot be: it carries the `name` of the figure and its `value`."""

    def __init__(self, name: str, value: float, expected: str) -> None:
        self.name = name
        self.value = value
        super().__init__(f"{name} is {value}, expected {expected}")


@dataclass(frozen=True, slots=True)
class Condition:
    """One way of a link.

    `delay_s` is how many seconds each byte is on the way, beyond what it takes anyway; many can be at once.
    `bytes_per_s` is how many pass a second. `stalled` lets none pass: like TCP over a network that drops every
    packet, nothing is lost and nothing fails; all of it arrives once the stall is over.
    """

    delay_s: float = 0.0
    bytes_per_s: float = math.inf
    stalled: bool = False

    def __post_init__(self) -> None:
        """Refuse figures that no link has."""
        if not (math.isfinite(self.delay_s) and self.delay_s >= 0.0):
            raise WeatherError("delay_s", self.delay_s, "a finite number, 0 or above")
        if not self.bytes_per_s > 0.0:
            raise WeatherError("bytes_per_s", self.bytes_per_s, "a number above 0")


@dataclass(frozen=True, slots=True)
class Weather:
    """Both ways of a link."""

    forth: Condition = field(default_factory=Condition)
    back: Condition = field(default_factory=Condition)

    def of(self, way: Way) -> Condition:
        """Return the condition of one way."""
        return self.forth if way is Way.FORTH else self.back

    @classmethod
    def delayed(cls, seconds: float) -> Weather:
        """Every byte is so many seconds later, each way: a round trip takes twice that."""
        return cls(Condition(delay_s=seconds), Condition(delay_s=seconds))

    @classmethod
    def narrow(cls, bytes_per_s: float) -> Weather:
        """No more than so many bytes a second pass, each way."""
        return cls(Condition(bytes_per_s=bytes_per_s), Condition(bytes_per_s=bytes_per_s))

    @classmethod
    def dropping(cls) -> Weather:
        """Nothing passes, and nobody is told."""
        return cls(Condition(stalled=True), Condition(stalled=True))

    @classmethod
    def one_way(cls, open_way: Way) -> Weather:
        """Bytes pass on `open_way` alone."""
        stalled = Condition(stalled=True)
        return cls(back=stalled) if open_way is Way.FORTH else cls(forth=stalled)


CLEAR = Weather()
"""Nothing is wrong."""
