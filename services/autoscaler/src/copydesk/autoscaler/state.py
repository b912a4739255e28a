"""What the decisions before have left behind: a value, replaced whole by each decision."""

from __future__ import annotations

from dataclasses import dataclass, field

from copydesk.autoscaler.forecast import Season
from copydesk.autoscaler.refinement import Refinement


@dataclass(frozen=True, slots=True)
class State:
    """Of one model, in the hands of one leader.

    `leader_since` is when this leader began, None before its first decision. `demand` holds (moment, pods' worth)
    of the last minute, `wanted` (moment, pods) those of the last five that nothing since has reached, `sizes`
    (moment, size) since each change in the last minute, `ramps` the relative rises a second of the last day, a
    minute each. `heard_at` is when any gateway was last heard in time.
    """

    leader_since: float | None = None
    last_at: float | None = None
    heard_at: float | None = None
    service_s: float = 0.0
    demand: tuple[tuple[float, float], ...] = ()
    wanted: tuple[tuple[float, int], ...] = ()
    sizes: tuple[tuple[float, int], ...] = ()
    ramps: tuple[float, ...] = ()
    ramp: float = 0.0
    ramp_at: float | None = None
    ramp_base: float = 0.0
    panic_until: float | None = None
    season: Season = field(default_factory=Season)
    refinement: Refinement = field(default_factory=Refinement)
