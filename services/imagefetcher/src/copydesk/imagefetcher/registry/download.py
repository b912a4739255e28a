"""One blob on its way from a registry into a file."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import BinaryIO

import httpx2

from copydesk.imagefetcher.registry.errors import AnswerError, RegistryUnreachableError
from copydesk.imagefetcher.registry.manifest import Descriptor
from copydesk.imagefetcher.registry.transport import Transport


class Download:
    """One blob on its way into a file, with what is known of it so far."""

    def __init__(
        self,
        transport: Transport,
        path: str,
        scope: str,
        descriptor: Descriptor,
        out: BinaryIO,
        progress: Callable[[int], None],
    ) -> None:
        self._transport = transport
        self._path = path
        self._scope = scope
        self._size = descriptor.size
        self._out = out
        self._progress = progress
        self._have = 0
        self._seen = hashlib.sha256()

    def restart(self) -> None:
        """Forgets what came so far."""
        self._progress(-self._have)
        self._have, self._seen = 0, hashlib.sha256()
        self._out.seek(0)
        self._out.truncate()

    async def run(self) -> str:
        """Fetches what is missing, however often the connection breaks off on the way; returns the digest."""
        failures = 0
        while self._have < self._size or failures == 0:
            before = self._have
            try:
                await self._fetch()
            except httpx2.TransportError as error:
                self._fail(error, failures)
            if self._have >= self._size:
                break
            failures = failures + 1 if self._have == before else 1
            self._fail(None, failures - 1)
            await self._transport.pause(failures - 1)
        return f"sha256:{self._seen.hexdigest()}"

    def _fail(self, error: Exception | None, failures: int) -> None:
        if failures + 1 >= self._transport.options.attempts:
            reason = f"a blob broke off at byte {self._have} of {self._size}"
            raise RegistryUnreachableError(self._transport.host, reason) from error

    async def _fetch(self) -> None:
        headers = {"Range": f"bytes={self._have}-"} if self._have else {}
        async with self._transport.request("GET", self._path, scope=self._scope, headers=headers) as response:
            told = response.headers.get("Content-Range", "")
            if self._have and response.status_code != 206:
                self.restart()  # This registry sends blobs only whole.
            elif self._have and not told.startswith(f"bytes {self._have}-"):
                raise AnswerError(self._transport.host, f"sent {told!r} for a range from byte {self._have}")
            async for part in response.aiter_raw():
                if self._have + len(part) > self._size:
                    raise AnswerError(self._transport.host, f"sends more than the {self._size} bytes of a blob")
                self._out.write(part)
                self._seen.update(part)
                self._have += len(part)
                self._progress(len(part))
