"""What one replica of discovery says of itself over HTTP, at `/endpoints`; `copydesk eds inspect` reads it."""

from __future__ import annotations

import msgspec

from copydesk.common.messages import EndpointsSnapshot


class HeldView(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint whose loss is held back, for how many seconds it has been, and after how many it is let go."""

    id: str
    seconds: float
    limit_seconds: float


class ModelView(msgspec.Struct, frozen=True, kw_only=True):
    """What may be published of a model, and which of its endpoints are there only because a loss is held back."""

    snapshot: EndpointsSnapshot
    held: tuple[HeldView, ...]


class ReplicaView(msgspec.Struct, frozen=True, kw_only=True):
    """One replica.

    `settled`: its source has had time to name everybody. `stale`: its source cannot be heard. `leader`: it is the
    one who publishes, under `epoch`. `event_age_s`: since its source last said anything.
    """

    settled: bool
    stale: bool
    leader: bool
    epoch: int
    bus_connected: bool
    event_age_s: float
    models: tuple[ModelView, ...] = ()
