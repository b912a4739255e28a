"""What the gateway says of its fleet while it is struck: who is in service, and what is in flight."""

from __future__ import annotations

from collections.abc import Mapping

import httpx
import msgspec

TIMEOUT_S = 3.0


class _Pod(msgspec.Struct, frozen=True):
    id: str
    state: str = ""
    connected: bool = False
    eligible: bool = False
    ejected: str | None = None

    @property
    def serves(self) -> bool:
        return self.connected and self.eligible and self.ejected is None


class _Totals(msgspec.Struct, frozen=True):
    in_flight: int = 0
    queued: int = 0


class _Fleet(msgspec.Struct, frozen=True):
    model: str = ""
    pods: tuple[_Pod, ...] = ()
    totals: _Totals = _Totals()


class FleetWatch:
    """Asks the gateway at `url`. The pods that are there when it first looks are those that it then misses."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._client = httpx.AsyncClient(base_url=url, headers=dict(headers), timeout=TIMEOUT_S, trust_env=False)
        self._expected: frozenset[str] = frozenset()
        self.model = ""

    async def look(self) -> None:
        """Learn who is there; raises `httpx.HTTPError` and `msgspec.DecodeError` where nobody says so."""
        response = await self._client.get("/v1/fleet")
        fleet = msgspec.json.decode(response.raise_for_status().content, type=_Fleet)
        self._expected = frozenset(pod.id for pod in fleet.pods)
        self.model = fleet.model

    async def missing(self) -> tuple[str, ...]:
        """Name the pods that take no requests just now; `gateway` where that does not answer."""
        fleet = await self._fleet()
        if fleet is None:
            return ("gateway",)
        return tuple(sorted(self._expected - {pod.id for pod in fleet.pods if pod.serves}))

    async def in_flight(self) -> int | None:
        """Return how many requests are at pods or wait for one; None where the gateway does not answer."""
        fleet = await self._fleet()
        return None if fleet is None else fleet.totals.in_flight + fleet.totals.queued

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _fleet(self) -> _Fleet | None:
        try:
            response = await self._client.get("/v1/fleet")
            return msgspec.json.decode(response.raise_for_status().content, type=_Fleet)
        except (httpx.HTTPError, msgspec.DecodeError):
            return None
