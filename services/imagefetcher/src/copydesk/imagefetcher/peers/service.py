"""Gives cached sectors to peers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from http import HTTPStatus

import zstandard

from copydesk.imagefetcher.metrics import Metrics
from copydesk.imagefetcher.peers.proof import HEADER, PREFIX, proves
from copydesk.imagefetcher.web_server import Answer, Request, RequestError

AT_A_TIME = 8
"""Sectors read, packed and sent at a time: 32 MiB of memory, and a node that serves still does its own work."""
_LEVEL = 1
_NAME = re.compile(r"[0-9a-f]{64}")


class PeerService:
    """Answers `GET /v1/sectors/<hex digest>` with what `read` returns, to those who prove that they know `token`.

    Nothing is fetched for a peer: what is not here is 404.
    """

    def __init__(self, token: str, read: Callable[[str], bytes | None], metrics: Metrics) -> None:
        self._token = token
        self._read = read
        self._metrics = metrics
        self._turns = asyncio.Semaphore(AT_A_TIME)

    async def handle(self, request: Request) -> Answer:
        """Answer one request; raises RequestError."""
        if not proves(self._token, request.path, request.headers.get(HEADER, "")):
            raise RequestError(HTTPStatus.UNAUTHORIZED)
        name = request.path.removeprefix(PREFIX)
        if request.method != "GET" or not request.path.startswith(PREFIX) or not _NAME.fullmatch(name):
            raise RequestError(HTTPStatus.NOT_FOUND)
        packs = "zstd" in request.headers.get("accept-encoding", "")
        async with self._turns:
            body = await asyncio.to_thread(self._body, f"sha256:{name}", packs)
        if body is None:
            raise RequestError(HTTPStatus.NOT_FOUND)
        self._metrics.served(len(body))
        return Answer(body, "application/octet-stream", encoding="zstd" if packs else "")

    def _body(self, digest: str, packs: bool) -> bytes | None:
        content = self._read(digest)
        if content is None or not packs:
            return content
        return zstandard.ZstdCompressor(level=_LEVEL).compress(content)
