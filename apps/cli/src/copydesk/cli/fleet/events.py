"""What happens to a fleet, as data: one JSON object a line with `--json`, sentences for people without."""

from __future__ import annotations

import msgspec


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    """Something happened at `time` (Unix seconds)."""

    time: float


class Starting(Event, frozen=True, kw_only=True, tag="starting"):
    """The processes are being started; `logs` is where each of them writes, `autoscale` the limits of a size that
    an autoscaler decides, `certificate` the file that says what a pod can do, certificate or profile (none: it is
    assumed). `candidate` is the directory or profile of another version that runs beside the others in
    `candidate_pods`.
    """

    url: str
    model: str
    model_dir: str
    pods: int
    threads: int
    state_dir: str
    logs: str
    processes: tuple[str, ...]
    autoscale: str | None = None
    certificate: str | None = None
    candidate: str | None = None
    candidate_pods: int = 0


class ChildUp(Event, frozen=True, kw_only=True, tag="child_up"):
    """A process is in service for the first time, `after_s` seconds after its start."""

    name: str
    pid: int
    after_s: float


class ChildExited(Event, frozen=True, kw_only=True, tag="child_exited"):
    """A process ended by itself (`code` is negative for a signal); it comes back in `restart_in_s` seconds."""

    name: str
    pid: int
    code: int
    how: str
    uptime_s: float
    restart_in_s: float
    log: str


class Restarted(Event, frozen=True, kw_only=True, tag="restarted"):
    """A process that had ended is in service again, `after_s` seconds after its end."""

    name: str
    pid: int
    after_s: float


class Scaled(Event, frozen=True, kw_only=True, tag="scaled"):
    """The autoscaler decided another size: the fleet had `before` pods to work towards, now has `pods`."""

    before: int
    pods: int
    reason: str
    rule: str
    epoch: int
    sequence: int


class Refused(Event, frozen=True, kw_only=True, tag="decision_refused"):
    """A decision of `pods` pods was not acted on; of those refused for the same reason, one a minute is told."""

    pods: int
    reason: str
    epoch: int
    sequence: int


class Draining(Event, frozen=True, kw_only=True, tag="draining"):
    """A pod was told to end: gateways send it nothing more, and it answers what it has."""

    name: str
    pid: int | None


class Drained(Event, frozen=True, kw_only=True, tag="drained"):
    """A pod that was to end has ended, `after_s` seconds after it was told, and is not restarted."""

    name: str
    how: str
    after_s: float


class NotStarted(Event, frozen=True, kw_only=True, tag="not_started"):
    """A process that the fleet can do without could not be started; it is tried again in `retry_in_s` seconds."""

    name: str
    reason: str
    retry_in_s: float


class Ready(Event, frozen=True, kw_only=True, tag="ready"):
    """Every process that serves is in service; `after_s` counts from the start. An autoscaler comes after that."""

    url: str
    after_s: float


class Stuck(Event, frozen=True, kw_only=True, tag="still_waiting"):
    """The fleet is not ready after `after_s` seconds; `waiting_for` names what is not in service."""

    after_s: float
    waiting_for: tuple[str, ...]
    logs: str


class Failed(Event, frozen=True, kw_only=True, tag="failed"):
    """A process cannot run; the fleet stops. `log_tail` are the last lines that it wrote."""

    name: str
    reason: str
    log: str
    log_tail: tuple[str, ...]
    exit_code: int


class Stopping(Event, frozen=True, kw_only=True, tag="stopping"):
    """The fleet stops, from the gateway to NATS."""

    reason: str


class Killed(Event, frozen=True, kw_only=True, tag="child_killed"):
    """A process had not ended `grace_s` seconds after SIGTERM."""

    name: str
    grace_s: float


class Stopped(Event, frozen=True, kw_only=True, tag="stopped"):
    """Every process has ended."""

    after_s: float
    exit_code: int


class Correction(Event, frozen=True, kw_only=True, tag="correction"):
    """One text that the fleet corrected, to show that it works."""

    text: str
    corrected: str
    latency_ms: float
