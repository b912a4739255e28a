"""The heartbeat source: pods are known by the load reports that they publish on NATS."""

from __future__ import annotations

from copydesk.common.bus import Bus, Subscription
from copydesk.common.messages import LoadReport, load_subject
from copydesk.eds.roster import Reported
from copydesk.eds.source import Emit


class HeartbeatSource:
    """Passes on every load report of every model; who is late, twice or silent is the roster's to say."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._subscription: Subscription[LoadReport] | None = None

    async def start(self, emit: Emit) -> None:
        """Subscribe; reports come whenever the bus is connected."""
        self._subscription = await self._bus.subscribe(
            load_subject("*", "*"), LoadReport, lambda report: emit(Reported(report))
        )

    async def close(self) -> None:
        """Unsubscribe."""
        if self._subscription is not None:
            await self._subscription.unsubscribe()
