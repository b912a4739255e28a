"""Manifests of one repository, fetched and pushed as the bytes that they are."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from copydesk.imagefetcher.registry.errors import DigestMismatchError
from copydesk.imagefetcher.registry.manifest import (
    INDEXES,
    MANIFESTS,
    MAX_MANIFEST_BYTES,
    Descriptor,
    media_type_of,
)
from copydesk.imagefetcher.registry.transport import Transport

_ACCEPT = ", ".join((*MANIFESTS, *INDEXES))


@dataclass(frozen=True, slots=True)
class Fetched:
    """A manifest or index, as it came."""

    media_type: str
    digest: str
    raw: bytes

    @property
    def is_index(self) -> bool:
        """Whether it lists manifests for several platforms."""
        return self.media_type in INDEXES

    @property
    def descriptor(self) -> Descriptor:
        """What names it."""
        return Descriptor(self.media_type, self.digest, len(self.raw))


class Manifests:
    """The manifests of `repository`."""

    def __init__(self, transport: Transport, repository: str) -> None:
        self._transport = transport
        self._path = f"/v2/{repository}/manifests/"
        self._pull = f"repository:{repository}:pull"
        self._push = f"repository:{repository}:pull,push"

    async def get(self, name: str) -> Fetched:
        """The manifest of a tag or digest; raises NotFoundError, and DigestMismatchError for a wrong one."""
        response, raw = await self._transport.small(
            "GET", self._path + name, scope=self._pull, limit=MAX_MANIFEST_BYTES, headers={"Accept": _ACCEPT}
        )
        digest = f"sha256:{hashlib.sha256(raw).hexdigest()}"
        told = name if name.startswith("sha256:") else response.headers.get("Docker-Content-Digest", digest)
        if told.startswith("sha256:") and told != digest:
            raise DigestMismatchError(self._transport.host, told, digest)
        return Fetched(media_type_of(raw, response.headers.get("Content-Type", "")), digest, raw)

    async def put(self, name: str, media_type: str, raw: bytes) -> bool:
        """Pushes a manifest under a tag or its digest; True if the registry took note of its subject by itself."""
        headers = {"Content-Type": media_type}
        response, _ = await self._transport.small(
            "PUT", self._path + name, scope=self._push, limit=1 << 20, headers=headers, content=raw
        )
        return "OCI-Subject" in response.headers
