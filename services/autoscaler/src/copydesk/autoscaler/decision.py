"""What was decided, from what, and why."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Rule(enum.StrEnum):
    """The rule that settled the size; the names are those of the metric's labels and of the decision log."""

    STEADY = "steady"
    UP = "up"
    PANIC = "panic"
    FORECAST = "forecast"
    STUCK = "stuck"
    DOWN = "down"
    WITHDRAW = "withdraw"
    HOLD_STALE = "hold_stale"
    HOLD_SILENT = "hold_silent"
    HOLD_NEW = "hold_new_leader"
    HOLD_RECENT = "hold_recent_peak"
    HOLD_GUARD = "hold_guard"
    HOLD_PACE = "hold_pace"
    HOLD_SLACK = "hold_slack"
    LIMIT = "limit"


@dataclass(frozen=True, slots=True)
class Inputs:
    """All that the decision was made from, in plain numbers. Demand and its kin are in pods' worth of work.

    `concurrency` is the demand as it was counted, in requests; `demand` the same in pods that work at the
    certified rate; `demand_6/20/60` means over so many seconds, `slope` its rise a second as far as it is certain;
    `urgent` what both of the last two samples reach (the last one, if requests were refused), or that of 6 s;
    `share` the part of the certified rate that a pod shall do; `target` the concurrency a pod at which it does;
    `effective` the pods that count, those that start in part; `wanted` what the demand calls for,
    `peak` the highest of that lately, `forecast` what the feed-forward calls for (None: not in force).
    """

    size: int
    concurrency: float
    demand: float
    demand_6: float
    urgent: float
    demand_20: float
    demand_60: float
    slope: float
    share: float
    target: float
    refinement: float
    ready: int
    pending: int
    stuck: int
    effective: float
    wanted: int
    peak: int
    forecast: int | None
    forecast_error: float | None
    stale_gateways: tuple[str, ...]
    silent_s: float


@dataclass(frozen=True, slots=True)
class Decision:
    """How many pods there shall be. `reason` says why in words, for people; `rule` for machines.

    `stuck` names the pods that have not become ready in time: to alert on, since they are not waited for.
    """

    replicas: int
    rule: Rule
    reason: str
    inputs: Inputs
    stuck: tuple[str, ...] = ()

    @property
    def change(self) -> int:
        """The pods to add; below zero, to remove."""
        return self.replicas - self.inputs.size
