"""One blob on its way to a registry (distribution specification, "Pushing a blob in chunks")."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import BinaryIO, Final
from urllib.parse import quote, urlsplit

from copydesk.imagefetcher.registry.errors import AnswerError, RefusedError, RegistryUnreachableError
from copydesk.imagefetcher.registry.manifest import Descriptor
from copydesk.imagefetcher.registry.transport import Transport

PART: Final = 16 << 20
"""What is sent in one request: what is lost when it fails, and what must be held in memory for it."""
_LIMIT: Final = 1 << 20
_OCTETS: Final = {"Content-Type": "application/octet-stream"}


class Upload:
    """One blob on its way to the registry, part by part; where one broke off, the registry is asked how far."""

    def __init__(
        self,
        transport: Transport,
        path: str,
        scope: str,
        descriptor: Descriptor,
        file: BinaryIO,
        progress: Callable[[int], None],
    ) -> None:
        self.sent = 0
        self._transport = transport
        self._path = path
        self._scope = scope
        self._digest = descriptor.digest
        self._size = descriptor.size
        self._file = file
        self._progress = progress

    async def run(self) -> None:
        """Sends everything."""
        location, part = await self._begin()
        failures = 0
        while self._size - self.sent > part:
            content = await self._read(part)
            try:
                location = await self._send(location, content)
            except (RegistryUnreachableError, RefusedError):
                failures += 1
                if failures >= self._transport.options.attempts:
                    raise
                await self._transport.pause(failures)
                location = await self._resume(location)
        await self._finish(location, await self._read(part))

    async def _read(self, count: int) -> bytes:
        self._file.seek(self.sent)
        return await asyncio.to_thread(self._file.read, count)

    async def _send(self, location: str, content: bytes) -> str:
        headers = _OCTETS | {"Content-Range": f"{self.sent}-{self.sent + len(content) - 1}"}
        response, _ = await self._transport.small(
            "PATCH", location, scope=self._scope, limit=_LIMIT, headers=headers, content=content, attempts=1
        )
        self._advance(self.sent + len(content))
        return response.headers.get("Location") or location

    async def _resume(self, location: str) -> str:
        """Asks how far the registry got; raises NotFoundError if it has forgotten the upload."""
        response, _ = await self._transport.small("GET", location, scope=self._scope, limit=_LIMIT)
        end = response.headers.get("Range", "").rpartition("-")[2]
        if not end.isdigit() or int(end) >= self._size:
            raise AnswerError(self._transport.host, "does not say how much of an upload it has")
        # "0-0" means both nothing and one byte; no part is that short.
        self._advance(0 if end == "0" else int(end) + 1)
        return response.headers.get("Location") or location

    def _advance(self, sent: int) -> None:
        self._progress(sent - self.sent)
        self.sent = sent

    async def _begin(self) -> tuple[str, int]:
        response, _ = await self._transport.small("POST", self._path + "uploads/", scope=self._scope, limit=_LIMIT)
        location = response.headers.get("Location")
        if not location:
            raise AnswerError(self._transport.host, "does not say where to upload to")
        least = response.headers.get("OCI-Chunk-Min-Length", "")
        return location, max(PART, int(least) if least.isdigit() else 0)

    async def _finish(self, location: str, content: bytes) -> None:
        mark = "&" if urlsplit(location).query else "?"
        path = f"{location}{mark}digest={quote(self._digest)}"
        await self._transport.small(
            "PUT", path, scope=self._scope, limit=_LIMIT, headers=_OCTETS, content=content, attempts=1
        )
        self._advance(self._size)
