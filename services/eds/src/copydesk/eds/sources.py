"""Which source the settings ask for."""

from __future__ import annotations

from copydesk.common.bus import Bus
from copydesk.eds.heartbeat import HeartbeatSource
from copydesk.eds.metrics import Metrics
from copydesk.eds.settings import EdsSettings, SourceKind
from copydesk.eds.source import Source
from copydesk.eds.static import StaticSource


def make_source(settings: EdsSettings, bus: Bus, metrics: Metrics) -> Source:
    """Make the source that the settings ask for; only the heartbeat source listens to `bus`."""
    if settings.source is SourceKind.HEARTBEAT or settings.static_file is None:
        return HeartbeatSource(bus)
    return StaticSource(
        settings.static_file, poll=settings.static_poll_ms / 1000, on_error=metrics.static_file_broken
    )
