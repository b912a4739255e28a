"""The artifacts of an image: the referrers API of distribution specification 1.1, and its stand-in by tag.

A registry without the API keeps the list under the tag `sha256-HEX` of the image's digest; then whoever pushes an
artifact writes the list (section "Referrers Tag Schema").
"""

from __future__ import annotations

from copydesk.imagefetcher.registry.errors import AnswerError, NotFoundError
from copydesk.imagefetcher.registry.manifest import OCI_INDEX, Descriptor, Index, decode_index, encode_json
from copydesk.imagefetcher.registry.manifests import Manifests
from copydesk.imagefetcher.registry.transport import Transport

MAX_LIST_BYTES = 16 << 20
MAX_PAGES = 100
MAX_ENTRIES = 10_000


class Referrers:
    """The lists of a repository."""

    def __init__(self, transport: Transport, repository: str, manifests: Manifests) -> None:
        self._transport = transport
        self._repository = repository
        self._manifests = manifests
        self._scope = f"repository:{repository}:pull"

    async def find(self, digest: str, artifact_type: str) -> list[Descriptor]:
        """The artifacts of this type whose subject is the manifest `digest`."""
        found = await self._by_api(digest)
        if found is None:
            found = await self._by_tag(digest)
        return [descriptor for descriptor in found if descriptor.artifact_type == artifact_type]

    async def add(self, digest: str, artifact: Descriptor) -> None:
        """Puts an artifact on the list by tag; others of its type are taken off: one image has one."""
        listed = await self._by_tag(digest)
        others = [entry for entry in listed if entry.artifact_type != artifact.artifact_type]
        if [*others, artifact] == listed:
            return
        raw = encode_json(Index(schema_version=2, media_type=OCI_INDEX, manifests=(*others, artifact)))
        await self._manifests.put(fallback_tag(digest), OCI_INDEX, raw)

    async def _by_api(self, digest: str) -> list[Descriptor] | None:
        """The answer of the API, page by page; None from a registry that has none."""
        path = f"/v2/{self._repository}/referrers/{digest}"
        found: list[Descriptor] = []
        for _ in range(MAX_PAGES):
            response, raw = await self._transport.small(
                "GET", path, scope=self._scope, limit=MAX_LIST_BYTES, headers={"Accept": OCI_INDEX}, allowed=(404,)
            )
            # What answers 200 to anything is no such API: the specification fixes the type.
            if not response.headers.get("Content-Type", "").startswith(OCI_INDEX):
                return None
            found.extend(decode_index(self._transport.host, raw).manifests)
            if len(found) > MAX_ENTRIES:
                raise AnswerError(self._transport.host, f"lists more than {MAX_ENTRIES} artifacts of one image")
            following = response.links.get("next", {}).get("url")
            if not following:
                break
            path = following
        return found

    async def _by_tag(self, digest: str) -> list[Descriptor]:
        try:
            fetched = await self._manifests.get(fallback_tag(digest))
        except NotFoundError:
            return []
        if fetched.media_type != OCI_INDEX:
            return []
        return list(decode_index(self._transport.host, fetched.raw).manifests)


def fallback_tag(digest: str) -> str:
    """The tag that stands in for the API."""
    return digest.replace(":", "-")
