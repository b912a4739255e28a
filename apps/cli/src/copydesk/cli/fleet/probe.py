"""Whether the processes of a fleet do their work, asked where it shows: at the gateway and at NATS."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

import httpx
import msgspec

from copydesk.cli.api import FleetView, open_async
from copydesk.cli.fleet.plan import HOST, ChildSpec, Role

_FLEET_AGE_S = 0.08
_SETTLE_S = 0.3


class GatewayProbe:
    """Asks the gateway about itself and the pods, and NATS and Redis whether they listen.

    EDS has no door to knock at; it counts as up once it has lived for a moment, and the pods' own readiness,
    which comes through it, shows the rest. The autoscaler is up when it has decided: `decisions` counts.
    """

    def __init__(
        self, url: str, nats_port: int, decisions: Callable[[], int] = lambda: 0, *, redis_port: int = 0
    ) -> None:
        self._nats_port = nats_port
        self._redis_port = redis_port
        self._decisions = decisions
        self._client = open_async(url, timeout=2.0)
        self._pods: frozenset[str] = frozenset()
        self._asked_at = -1.0
        self._seen: dict[int, float] = {}
        self._decisions_before: dict[int, int] = {}

    async def is_up(self, spec: ChildSpec, pid: int) -> bool:
        """Say whether the process is in service."""
        match spec.role:
            case Role.NATS:
                return await _listens(self._nats_port)
            case Role.REDIS:
                return await _listens(self._redis_port)
            case Role.EDS:
                first_seen = self._seen.setdefault(pid, time.monotonic())
                return time.monotonic() - first_seen >= _SETTLE_S
            case Role.POD:
                return spec.name in await self._ready_pods()
            case Role.GATEWAY:
                return await self._get("/readyz") is not None
            case Role.AUTOSCALER:
                decisions = self._decisions()
                return decisions > self._decisions_before.setdefault(pid, decisions)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _ready_pods(self) -> frozenset[str]:
        now = time.monotonic()
        if now - self._asked_at >= _FLEET_AGE_S:
            self._asked_at = now
            body = await self._get("/v1/fleet")
            self._pods = frozenset() if body is None else _ready_in(body)
        return self._pods

    async def _get(self, path: str) -> bytes | None:
        try:
            response = await self._client.get(path)
        except httpx.HTTPError:
            return None
        return response.content if response.is_success else None


def _ready_in(body: bytes) -> frozenset[str]:
    try:
        view = msgspec.json.decode(body, type=FleetView)
    except msgspec.DecodeError:
        return frozenset()
    return frozenset(pod.id for pod in view.pods if pod.state == "ready" and pod.connected)


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(HOST, port)
    except OSError:
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True
