"""Who may ask, and how much at once: keys as they change, and the gate that every request passes."""

from copydesk.gateway.access.admission import admitting
from copydesk.gateway.access.gatekeeper import Gatekeeper, Release
from copydesk.gateway.access.sources import KeyFile, RedisKeys
from copydesk.gateway.access.watch import KeyWatch

__all__ = ["Gatekeeper", "KeyFile", "KeyWatch", "RedisKeys", "Release", "admitting"]
