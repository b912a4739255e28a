"""Registries by the distribution API, with mirrors: where the daemon's images come from."""

from __future__ import annotations

import asyncio
import platform
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from copydesk.common.telemetry import get_logger
from copydesk.imagefetcher.artifact import fetch_metadata, find_artifact, read_index
from copydesk.imagefetcher.convert.spool import Spool
from copydesk.imagefetcher.convert.unpack import unpack_image
from copydesk.imagefetcher.errors import ImageError
from copydesk.imagefetcher.fetch.blob_source import BlobSource
from copydesk.imagefetcher.fetch.source import Source, SourceKind
from copydesk.imagefetcher.index import ImageIndex, Platform, encode
from copydesk.imagefetcher.registry.errors import NotFoundError
from copydesk.imagefetcher.registry.image import resolve
from copydesk.imagefetcher.registry.manifest import Index, decode_index
from copydesk.imagefetcher.registry.options import RegistryOptions
from copydesk.imagefetcher.registry.reference import Reference, is_loopback
from copydesk.imagefetcher.registry.repository import Repository
from copydesk.imagefetcher.snapshotter.tree_on_disk import write_tree
from copydesk.imagefetcher.upstream import Converted, NotConvertedError, UpstreamError

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}
"""What Linux calls them, and Go: https://github.com/opencontainers/image-spec/blob/main/image-index.md."""

T = TypeVar("T")

_log = get_logger(__name__)


def this_platform() -> Platform:
    """The platform of this machine."""
    machine = platform.machine()
    return Platform("linux", _ARCHITECTURES.get(machine, machine))


class RegistryUpstream:
    """Asks each of `mirrors` (URLs), then the registry that a reference names.

    `patient` options are for looking an image up, `quick` ones for sectors, whose retries are the fetcher's. With
    `plain_http` those on this machine are spoken to without TLS, all others never unless they are named.
    """

    def __init__(self, patient: RegistryOptions, quick: RegistryOptions, mirrors: Sequence[str] = ()) -> None:
        self._patient = patient
        self._quick = quick
        self._mirrors = [urlsplit(url).netloc for url in mirrors]
        self._open: dict[tuple[str, str, bool], Repository] = {}
        self._platform = this_platform()

    async def find(self, reference: str) -> Converted:
        """Return the index of an image's converted form for this machine's platform.

        Raises NotConvertedError, UpstreamError.
        """
        image = _parse(reference)
        index = await self._first(reference, lambda mirror: self._find(image, mirror))
        return Converted(reference, encode(index))

    async def fetch_metadata(self, reference: str, index: ImageIndex, path: Path) -> None:
        """Write the plain metadata of an image to `path`. Raises UpstreamError."""
        image = _parse(reference)
        await self._first(reference, lambda mirror: fetch_metadata(self._repository(image, mirror), index, path))

    async def unpack(self, reference: str, layers: int, target: Path) -> None:
        """Unpack the lowest layers of an image, one over the other, into the empty folder `target`.

        Raises UpstreamError.
        """
        image = _parse(reference)
        await self._first(reference, lambda mirror: self._unpack(image, mirror, layers, target))

    def sources(self, reference: str) -> Sequence[Source]:
        """Return who has the image's data: mirrors, then its registry."""
        image = _parse(reference)
        mirrors = [self._source(image, mirror, SourceKind.MIRROR) for mirror in self._mirrors]
        return [*mirrors, self._source(image, "", SourceKind.REGISTRY)]

    async def close(self) -> None:
        """Close connections."""
        await asyncio.gather(*(repository.close() for repository in self._open.values()))
        self._open.clear()

    async def _first(self, reference: str, ask: Callable[[str], Awaitable[T]]) -> T:
        """The first good answer, of the mirrors and then the registry, which has the last word."""
        for mirror in self._mirrors:
            try:
                return await ask(mirror)
            except ImageError as error:
                _log.info("mirror_passed_over", mirror=mirror, reference=reference, error=str(error))
        try:
            return await ask("")
        except NotConvertedError:
            raise
        except ImageError as error:
            raise UpstreamError(reference, str(error), error.hint) from error

    async def _find(self, image: Reference, mirror: str) -> ImageIndex:
        repository = self._repository(image, mirror)
        top = await repository.manifests.get(image.object)
        digest = top.digest
        if top.is_index:
            digest = choose(decode_index(repository.host, top.raw), self._platform)
            if not digest:
                raise NotConvertedError(str(image))
        try:
            artifact = await find_artifact(repository, digest)
        except NotFoundError as error:
            raise NotConvertedError(str(image)) from error
        if artifact is None:
            raise NotConvertedError(str(image))
        return await read_index(repository, artifact)

    async def _unpack(self, reference: Reference, mirror: str, layers: int, target: Path) -> None:
        repository = self._repository(reference, mirror)
        image = (await resolve(repository, [str(self._platform)])).images[0]
        lowest = replace(
            image,
            manifest=msgspec.structs.replace(image.manifest, layers=image.manifest.layers[:layers]),
            config=msgspec.structs.replace(
                image.config,
                rootfs=msgspec.structs.replace(
                    image.config.rootfs, diff_ids=image.config.rootfs.diff_ids[:layers]
                ),
            ),
        )
        with (
            tempfile.TemporaryDirectory(prefix="unpack-", dir=target.parent) as folder,
            Spool(Path(folder)) as spool,
        ):
            flattener = await unpack_image(repository, lowest, Path(folder), spool, lambda *_: None)
            await asyncio.to_thread(write_tree, flattener.root, spool, target)

    def _source(self, image: Reference, mirror: str, kind: SourceKind) -> Source:
        name = f"{mirror or image.host}/{image.repository}"
        return BlobSource(name, kind, self._repository(image, mirror, quick=True))

    def _repository(self, image: Reference, mirror: str, *, quick: bool = False) -> Repository:
        key = (str(image), mirror, quick)
        repository = self._open.get(key)
        if repository is None:
            options = self._quick if quick else self._patient
            local = is_loopback(mirror or image.host)
            options = replace(options, plain_http=options.plain_http and local)
            repository = self._open[key] = Repository(image, options, mirror)
        return repository


def choose(index: Index, wanted: Platform) -> str:
    """The digest of the manifest for a platform, empty if there is none; one without a variant is preferred."""
    fit = [
        entry
        for entry in index.manifests
        if entry.platform is not None
        and (entry.platform.os, entry.platform.architecture) == (wanted.os, wanted.architecture)
    ]
    return min(fit, key=lambda entry: bool(entry.platform and entry.platform.variant)).digest if fit else ""


def _parse(reference: str) -> Reference:
    try:
        return Reference.parse(reference)
    except ImageError as error:
        raise UpstreamError(reference, str(error), error.hint) from error
