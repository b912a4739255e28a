"""Blobs of one repository: fetched whole, resumed where they broke off, or by ranges; pushed in parts."""

from __future__ import annotations

import asyncio
import hashlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import quote

import httpx2

from copydesk.imagefetcher.registry.download import Download
from copydesk.imagefetcher.registry.errors import (
    AnswerError,
    DigestMismatchError,
    NotFoundError,
    RefusedError,
    RegistryError,
    RegistryUnreachableError,
)
from copydesk.imagefetcher.registry.manifest import Descriptor
from copydesk.imagefetcher.registry.transport import Transport
from copydesk.imagefetcher.registry.upload import Upload

_LIMIT: Final = 1 << 20

Progress = Callable[[int], None]


def _silent(_: int) -> None:
    return


class Blobs:
    """The blobs of `repository` at the registry behind `transport`."""

    def __init__(self, transport: Transport, repository: str) -> None:
        self._transport = transport
        self._repository = repository
        self._path = f"/v2/{repository}/blobs/"
        self._pull = f"repository:{repository}:pull"
        self._push = f"repository:{repository}:pull,push"

    async def exists(self, digest: str) -> bool:
        """Whether the repository has a blob."""
        try:
            await self._transport.small("HEAD", self._path + digest, scope=self._pull, limit=0)
        except NotFoundError:
            return False
        return True

    async def read(self, descriptor: Descriptor, limit: int) -> bytes:
        """A small blob, checked; raises AnswerError if it is longer than `limit`, DigestMismatchError."""
        if descriptor.size > limit:
            raise AnswerError(self._transport.host, f"has {descriptor.size} bytes where {limit} are the limit")
        _, raw = await self._transport.small("GET", self._path + descriptor.digest, scope=self._pull, limit=limit)
        self._check(descriptor.digest, hashlib.sha256(raw).hexdigest())
        return raw

    async def read_blob(self, digest: str, start: int, stop: int) -> bytes:
        """Bytes `start` to `stop` (exclusive) of a blob. They are not checked: the digest is of the whole.

        Raises AnswerError if the registry sends anything but that range.
        """
        wanted = {"Range": f"bytes={start}-{stop - 1}"}
        response, body = await self._transport.small(
            "GET", self._path + digest, scope=self._pull, limit=stop - start, headers=wanted
        )
        self._check_range(response, start)
        if len(body) != stop - start:
            raise AnswerError(self._transport.host, f"sent {len(body)} bytes of a range of {stop - start}")
        return body

    async def download(self, descriptor: Descriptor, out: BinaryIO, progress: Progress = _silent) -> None:
        """Writes a blob to `out`, checked; goes on where a connection broke off.

        Raises DigestMismatchError when it is wrong a second time from its beginning.
        """
        download = Download(self._transport, self._path + descriptor.digest, self._pull, descriptor, out, progress)
        for last in (False, True):
            found = await download.run()
            if found == descriptor.digest:
                return
            download.restart()
            if last:
                raise DigestMismatchError(self._transport.host, descriptor.digest, found)

    async def mount(self, digest: str, source: str) -> bool:
        """Takes a blob over from another repository of the registry, without sending it; False if it did not."""
        path = f"{self._path}uploads/?mount={quote(digest)}&from={quote(source)}"
        scope = f"{self._push} repository:{source}:pull"
        response, _ = await self._transport.small("POST", path, scope=scope, limit=_LIMIT)
        if response.status_code == 202 and (location := response.headers.get("Location")):
            allowed = (400, 404, 405)  # Not every registry lets one take a begun upload back.
            await self._transport.small("DELETE", location, scope=self._push, limit=_LIMIT, allowed=allowed)
        return response.status_code == 201

    async def upload(self, descriptor: Descriptor, path: Path, progress: Progress = _silent) -> bool:
        """Pushes a file as a blob, going on where a connection broke off; False if the repository has it."""
        if await self.exists(descriptor.digest):
            progress(descriptor.size)
            return False
        file = await asyncio.to_thread(path.open, "rb")
        try:
            await self._persist(descriptor, file, progress)
        finally:
            file.close()
        return True

    async def upload_bytes(self, content: bytes) -> bool:
        """Pushes a small blob; False if the repository has it."""
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        if await self.exists(digest):
            return False
        await self._persist(Descriptor("", digest, len(content)), io.BytesIO(content), _silent)
        return True

    async def _persist(self, descriptor: Descriptor, file: BinaryIO, progress: Progress) -> None:
        """Uploads, from the beginning again where a registry has forgotten what came before."""
        attempts = self._transport.options.attempts
        for attempt in range(attempts):
            upload = Upload(self._transport, self._path, self._push, descriptor, file, progress)
            try:
                return await upload.run()
            except (RegistryUnreachableError, NotFoundError, RefusedError) as error:
                # The last answer may have been lost on its way, with the blob well there.
                if await self.exists(descriptor.digest):
                    return None
                if attempt + 1 == attempts or not _is_passing(error):
                    raise
            progress(-upload.sent)
            await self._transport.pause(attempt)
        raise AssertionError("attempts is at least 1")

    def _check(self, digest: str, found: str) -> None:
        if digest != f"sha256:{found}":
            raise DigestMismatchError(self._transport.host, digest, f"sha256:{found}")

    def _check_range(self, response: httpx2.Response, start: int) -> None:
        told = response.headers.get("Content-Range", "")
        if response.status_code != 206 or not told.startswith(f"bytes {start}-"):
            sent = f"{response.status_code} {told}".rstrip()
            raise AnswerError(self._transport.host, f"sent {sent!r} for a range from byte {start}")


def _is_passing(error: RegistryError) -> bool:
    """Whether a fault may be gone the next time."""
    return not isinstance(error, RefusedError) or error.status in (408, 416, 429) or error.status >= 500
