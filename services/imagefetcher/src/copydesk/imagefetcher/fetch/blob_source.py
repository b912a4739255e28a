"""Sectors out of the data blob in a registry, or in a mirror of one: one range, cut up, checked, decompressed."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence

import zstandard

from copydesk.imagefetcher.fetch.errors import Fault, SourceError
from copydesk.imagefetcher.fetch.place import Place
from copydesk.imagefetcher.fetch.source import RangeClient, SourceKind
from copydesk.imagefetcher.frames import unpack_frame
from copydesk.imagefetcher.index import Sector


class BlobSource:
    """A registry or mirror, by a client that reads ranges of blobs."""

    def __init__(self, name: str, kind: SourceKind, client: RangeClient) -> None:
        self.name = name
        self.kind = kind
        self._client = client

    async def fetch(self, run: Sequence[Place]) -> list[bytes]:
        """Return the content of the sectors of `run`; raises SourceError."""
        first, last = run[0].sector, run[-1].sector
        start, stop = first.offset, last.offset + last.length
        body = await self._read(run[0].data.digest, start, stop)
        if len(body) != stop - start:
            raise SourceError(self.name, Fault.LENGTH, f"{len(body)} bytes for {stop - start}")
        return await asyncio.to_thread(self._unpack, body, run, start)

    async def _read(self, digest: str, start: int, stop: int) -> bytes:
        try:
            return await self._client.read_blob(digest, start, stop)
        except TimeoutError as error:
            raise SourceError(self.name, Fault.TIMEOUT, str(error)) from error
        except OSError as error:
            raise SourceError(self.name, Fault.UNREACHABLE, str(error)) from error

    def _unpack(self, body: bytes, run: Sequence[Place], start: int) -> list[bytes]:
        view = memoryview(body)
        contents = []
        for place in run:
            at = place.sector.offset - start
            contents.append(unpack(self.name, place.sector, view[at : at + place.sector.length]))
        return contents


def unpack(source: str, sector: Sector, packed: memoryview) -> bytes:
    """Return the plain content of a sector; both forms are checked, the packed one before it is decompressed.

    Raises SourceError, in the name of `source`.
    """
    if f"sha256:{hashlib.sha256(packed).hexdigest()}" != sector.digest:
        raise SourceError(source, Fault.DIGEST, f"the packed sector is not {sector.digest}")
    try:
        plain = unpack_frame(packed, sector.plain_length)
    except zstandard.ZstdError as error:
        raise SourceError(source, Fault.DIGEST, str(error)) from error
    check_plain(source, sector, plain)
    return plain


def check_plain(source: str, sector: Sector, plain: bytes) -> None:
    """Raises SourceError unless `plain` is the content of `sector`."""
    if len(plain) != sector.plain_length:
        raise SourceError(source, Fault.LENGTH, f"{len(plain)} bytes for {sector.plain_length}")
    if f"sha256:{hashlib.sha256(plain).hexdigest()}" != sector.plain_digest:
        raise SourceError(source, Fault.DIGEST, f"the sector is not {sector.plain_digest}")
