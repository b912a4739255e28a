"""Blobs of one repository: fetched whole, resumed where they broke off, or by ranges; pushed in parts."""

from __future__ import annotations

import asyncio
import hashlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import quote, urlsplit

import httpx2

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

PART: Final = 16 << 20
"""What is sent in one request: what is lost when it fails, and what must be held in memory for it."""
_LIMIT: Final = 1 << 20
_OCTETS: Final = {"Content-Type": "application/octet-stream"}

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
        download = _Download(
            self._transport, self._path + descriptor.digest, self._pull, descriptor, out, progress
        )
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
            upload = _Upload(self._transport, self._path, self._push, descriptor, file, progress)
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


class _Upload:
    """One blob on its way to the registry, part by part; where one broke off, the registry is asked how far."""

    def __init__(
        self,
        transport: Transport,
        path: str,
        scope: str,
        descriptor: Descriptor,
        file: BinaryIO,
        progress: Progress,
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


class _Download:
    """One blob on its way into a file, with what is known of it so far."""

    def __init__(
        self,
        transport: Transport,
        path: str,
        scope: str,
        descriptor: Descriptor,
        out: BinaryIO,
        progress: Progress,
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
