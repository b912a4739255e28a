"""How a gateway balances: what of its settings the fleet and the dispatcher need to know."""

from __future__ import annotations

from dataclasses import dataclass, field

from copydesk.routing import OutlierRules


@dataclass(frozen=True, slots=True)
class Balancing:
    """See the settings of the same names. Times in seconds.

    `identity` and `zone` say which gateway this is and where; together with the membership they decide which
    pods it uses.
    """

    identity: str = "gateway"
    zone: str = ""
    aperture: int = 32
    spillover: float = 1.5
    slow_start: float = 10.0
    overcommit: float = 1.25
    queue: int = 512
    hedge: bool = False
    outliers: OutlierRules = field(default_factory=OutlierRules)
