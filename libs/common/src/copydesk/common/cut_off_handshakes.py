"""Close the connection of a request that is cancelled during its TLS handshake.

httpx2's connection pool closes one whose handshake fails, but forgets one whose handshake is cancelled: its socket
stays open until Python finds that nobody refers to it. Its `trace` extension tells of both.
"""

from __future__ import annotations

from typing import Any, Protocol


class TracedRequest(Protocol):
    """What this needs of an `httpx2.Request`."""

    extensions: dict[str, Any]


class _Stream(Protocol):
    async def aclose(self) -> None: ...


async def close_cut_off_handshake(request: TracedRequest) -> None:
    """Have it done for `request`: a hook for `event_hooks["request"]` of an `httpx2.AsyncClient`."""
    request.extensions["trace"] = _Handshake().on_event


class _Handshake:
    def __init__(self) -> None:
        self._connected: _Stream | None = None

    async def on_event(self, event: str, info: dict[str, Any]) -> None:
        """Take one step of the connection pool."""
        if event == "connection.connect_tcp.complete":
            self._connected = info["return_value"]
        elif event == "connection.start_tls.failed" and self._connected is not None:
            await self._connected.aclose()
