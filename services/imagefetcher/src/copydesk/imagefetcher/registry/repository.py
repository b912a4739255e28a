"""One repository of one registry: its blobs, manifests and artifacts behind one set of connections."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from copydesk.imagefetcher.registry.blobs import Blobs
from copydesk.imagefetcher.registry.manifests import Fetched, Manifests
from copydesk.imagefetcher.registry.options import RegistryOptions
from copydesk.imagefetcher.registry.reference import Reference
from copydesk.imagefetcher.registry.referrers import Referrers
from copydesk.imagefetcher.registry.transport import Transport


class Repository:
    """The repository of `reference`; an async context manager that closes its connections.

    `mirror`, where given, is the host (with its port) that is asked in the registry's stead, under its own log-in.
    """

    def __init__(self, reference: Reference, options: RegistryOptions | None = None, mirror: str = "") -> None:
        host = mirror or reference.api_host
        login_host = mirror or reference.host
        self.reference = reference
        self._transport = Transport(host, options or RegistryOptions(), login_host=login_host)
        self.blobs = Blobs(self._transport, reference.repository)
        self.manifests = Manifests(self._transport, reference.repository)
        self.referrers = Referrers(self._transport, reference.repository, self.manifests)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transport.close()

    async def close(self) -> None:
        """Closes the connections; no other method works afterwards."""
        await self._transport.close()

    @property
    def host(self) -> str:
        """The registry that is asked."""
        return self._transport.host

    async def manifest(self) -> Fetched:
        """The manifest or index that the reference names."""
        return await self.manifests.get(self.reference.object)

    async def read_blob(self, digest: str, start: int, stop: int) -> bytes:
        """Bytes `start` to `stop` (exclusive) of a blob, unchecked."""
        return await self.blobs.read_blob(digest, start, stop)
