"""A peer as a source of sectors; nothing that it says is believed before it is hashed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from http import HTTPStatus

import httpx2
import zstandard

from copydesk.imagefetcher.fetch.blob_source import check_plain
from copydesk.imagefetcher.fetch.errors import Fault, SourceError
from copydesk.imagefetcher.fetch.place import Place
from copydesk.imagefetcher.fetch.source import SourceKind
from copydesk.imagefetcher.frames import unpack_frame
from copydesk.imagefetcher.index import Sector
from copydesk.imagefetcher.peers.directory import Peer
from copydesk.imagefetcher.peers.proof import HEADER, PREFIX, proof

_SLACK = 64 << 10
"""By how much a packed sector may be longer than a plain one."""


class PeerSource:
    """Sectors from the cache of another node."""

    kind = SourceKind.PEER

    def __init__(self, peer: Peer, token: str, client: httpx2.AsyncClient) -> None:
        self.name = f"peer {peer.node}"
        host = f"[{peer.host}]" if ":" in peer.host else peer.host
        self._url = f"http://{host}:{peer.port}"
        self._token = token
        self._client = client

    async def fetch(self, run: Sequence[Place]) -> list[bytes]:
        """Return the content of the sectors of `run`; raises SourceError."""
        return [await self._fetch(place.sector) for place in run]

    async def _fetch(self, sector: Sector) -> bytes:
        path = PREFIX + sector.plain_digest.removeprefix("sha256:")
        try:
            body, packed = await self._get(path, sector.plain_length + _SLACK)
        except httpx2.TimeoutException as error:
            raise SourceError(self.name, Fault.TIMEOUT, str(error)) from error
        except httpx2.HTTPError as error:
            raise SourceError(self.name, Fault.UNREACHABLE, str(error)) from error
        return await asyncio.to_thread(self._unpack, sector, body, packed)

    async def _get(self, path: str, most: int) -> tuple[bytes, bool]:
        headers = {HEADER: proof(self._token, path), "accept-encoding": "zstd"}
        async with self._client.stream("GET", self._url + path, headers=headers) as response:
            if response.status_code == HTTPStatus.NOT_FOUND:
                raise SourceError(self.name, Fault.ABSENT)
            if response.status_code != HTTPStatus.OK:
                raise SourceError(self.name, Fault.REFUSED, f"status {response.status_code}")
            body = bytearray()
            async for part in response.aiter_raw():
                body += part
                if len(body) > most:
                    raise SourceError(self.name, Fault.LENGTH, f"more than {most} bytes")
            return bytes(body), response.headers.get("content-encoding") == "zstd"

    def _unpack(self, sector: Sector, body: bytes, packed: bool) -> bytes:
        if packed:
            try:
                body = unpack_frame(body, sector.plain_length)
            except zstandard.ZstdError as error:
                raise SourceError(self.name, Fault.DIGEST, str(error)) from error
        check_plain(self.name, sector, body)
        return body
