"""A gateway of a test, served over a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from copydesk.gateway.app import build_app, build_hot_path
from copydesk.gateway.keys import KeyRing
from copydesk.gateway.server import Server, listen
from copydesk.gateway.service import Gateway
from tests.unit.gateway.conftest import eventually


@asynccontextmanager
async def served(gateway: Gateway, ring: KeyRing, *, hot: bool) -> AsyncIterator[httpx.AsyncClient]:
    """Serve it, with its hot path or without; the client has the key `k1`."""
    path = build_hot_path(gateway, ring)
    if not hot:
        path.routes.clear()
    server = Server(build_app(gateway, ring), path, grace=0, timeout=1)
    listener = listen("127.0.0.1", 0)
    serving = asyncio.create_task(server.serve([listener]))
    await eventually(lambda: server.started)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        async with httpx.AsyncClient(base_url=url, headers={"Authorization": "Bearer k1"}) as client:
            yield client
    finally:
        server.stop()
        await serving
        gateway.lifecycle.stopping = False
