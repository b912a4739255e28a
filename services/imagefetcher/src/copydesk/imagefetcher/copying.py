"""An image copied from one repository to another, whole and unchanged, with the artifacts that belong to it."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from copydesk.imagefetcher.artifact import find_artifact, push_artifact
from copydesk.imagefetcher.registry.image import NoImageError
from copydesk.imagefetcher.registry.manifest import (
    INDEXES,
    MANIFESTS,
    Descriptor,
    Manifest,
    decode_index,
    decode_manifest,
)
from copydesk.imagefetcher.registry.manifests import Fetched
from copydesk.imagefetcher.registry.repository import Repository

MAX_DEPTH = 4
"""How deep indexes may list indexes."""
Progress = Callable[[int], None]


@dataclass(slots=True)
class Copied:
    """What was copied: `digest` is the same on both sides. `sent` counts bytes of blobs that had to be sent."""

    digest: str = ""
    manifests: int = 0
    artifacts: int = 0
    blobs: int = 0
    sent: int = 0


async def copy_image(
    source: Repository,
    target: Repository,
    *,
    artifacts: bool = True,
    work_dir: Path | None = None,
    progress: Progress = lambda _: None,
) -> Copied:
    """Copies what `source`'s reference names to `target`'s: every platform, bytes unchanged.

    What the target has already is not sent again, and between repositories of one registry nothing is, where it
    lets blobs be mounted. `progress` hears of bytes of blobs done. Raises RegistryError, NoImageError.
    """
    top = await source.manifest()
    wanted = target.reference.digest
    if wanted and wanted != top.digest:
        raise NoImageError(str(target.reference), f"cannot be the name of {top.digest}")
    with tempfile.TemporaryDirectory(prefix="copydesk-copy-", dir=work_dir) as folder:
        copier = _Copier(source, target, Path(folder), artifacts, progress)
        await copier.copy(top, target.reference.tag or top.digest, 0)
    copier.copied.digest = top.digest
    return copier.copied


class _Copier:
    def __init__(
        self, source: Repository, target: Repository, folder: Path, artifacts: bool, progress: Progress
    ) -> None:
        self.copied = Copied()
        self._source = source
        self._target = target
        self._folder = folder
        self._artifacts = artifacts
        self._progress = progress
        self._done: set[str] = set()

    async def copy(self, fetched: Fetched, name: str, depth: int) -> None:
        """Copies a manifest, all that it names first: registries refuse one whose parts they have not got."""
        if fetched.media_type in INDEXES and depth < MAX_DEPTH:
            for entry in decode_index(self._source.host, fetched.raw).manifests:
                if entry.digest not in self._done:
                    await self.copy(await self._source.manifests.get(entry.digest), entry.digest, depth + 1)
        elif fetched.media_type in MANIFESTS:
            await self._copy_blobs(decode_manifest(self._source.host, fetched.raw))
        else:
            raise NoImageError(str(self._source.reference), f"is of type {fetched.media_type[:80]!r}")
        await self._target.manifests.put(name, fetched.media_type, fetched.raw)
        self._done.add(fetched.digest)
        self.copied.manifests += 1
        if self._artifacts and fetched.media_type in MANIFESTS:
            await self._copy_artifact(fetched.digest)

    async def _copy_artifact(self, subject: str) -> None:
        artifact = await find_artifact(self._source, subject)
        if artifact is None:
            return
        await self._copy_blobs(artifact.manifest)
        await push_artifact(self._target, artifact)
        self.copied.artifacts += 1

    async def _copy_blobs(self, manifest: Manifest) -> None:
        for descriptor in (manifest.config, *manifest.layers):
            # What names other addresses for itself (layers of Windows) is in no registry.
            if descriptor.digest not in self._done and not descriptor.urls:
                await self._copy_blob(descriptor)
                self._done.add(descriptor.digest)
                self.copied.blobs += 1

    async def _copy_blob(self, descriptor: Descriptor) -> None:
        if await self._target.blobs.exists(descriptor.digest) or await self._mount(descriptor.digest):
            self._progress(descriptor.size)
            return
        path = self._folder / "blob"
        file = await asyncio.to_thread(path.open, "wb")
        with file:
            await self._source.blobs.download(descriptor, file)
        await self._target.blobs.upload(descriptor, path, self._progress)
        self.copied.sent += descriptor.size
        path.unlink()

    async def _mount(self, digest: str) -> bool:
        if self._source.host != self._target.host:
            return False
        return await self._target.blobs.mount(digest, self._source.reference.repository)
