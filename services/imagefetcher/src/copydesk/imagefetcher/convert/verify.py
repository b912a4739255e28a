"""Proof that an artifact holds what its image does: every name, every attribute, every byte.

The image's layers are flattened once more and the artifact is read from its blobs, both from the registry; nothing
that the conversion left behind is used.
"""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import zstandard

from copydesk.imagefetcher.artifact import ArtifactError, fetch_metadata, find_artifact, read_index
from copydesk.imagefetcher.convert.compare import Difference, compare_trees
from copydesk.imagefetcher.convert.spool import Spool
from copydesk.imagefetcher.convert.unpack import Meter, Report, unpack_image
from copydesk.imagefetcher.erofs.reader import FileSystem, read_metadata
from copydesk.imagefetcher.frames import unpack_frame
from copydesk.imagefetcher.index import BLOCK_SIZE, DATA_MEDIA_TYPE, ImageIndex, Platform, Sector
from copydesk.imagefetcher.registry.image import Image
from copydesk.imagefetcher.registry.manifest import Descriptor
from copydesk.imagefetcher.registry.repository import Repository
from copydesk.imagefetcher.tree import walk


@dataclass(frozen=True, slots=True)
class Verified:
    """What came out for one platform: `differences` is empty if the artifact is right."""

    platform: Platform
    image: str
    artifact: str
    names: int
    bytes_compared: int
    differences: tuple[Difference, ...]


async def verify_image(
    repository: Repository,
    image: Image,
    work_dir: Path | None = None,
    report: Callable[[Platform, str, int, int], None] = lambda *_: None,
) -> Verified | None:
    """Compares an image with its artifact; None if it has none. Raises ArtifactError for one that is damaged."""
    artifact = await find_artifact(repository, image.fetched.digest)
    if artifact is None:
        return None
    index = await read_index(repository, artifact)
    with tempfile.TemporaryDirectory(prefix="copydesk-image-", dir=work_dir) as name:
        folder = Path(name)
        own: Report = lambda phase, done, total: report(image.platform, phase, done, total)  # noqa: E731
        system, device = await _fetch_artifact(repository, index, folder, own)
        with Spool(folder) as spool:
            flattener = await unpack_image(repository, image, folder, spool, own)
            meter = Meter("compare", spool.size, own)
            async with meter.stopping():
                comparison = await asyncio.to_thread(
                    compare_trees, flattener.root, spool, system, device, meter.add
                )
        names = sum(1 for _ in walk(system.root))
    return Verified(
        image.platform, image.fetched.digest, artifact.digest, names, comparison.compared, comparison.differences
    )


async def _fetch_artifact(
    repository: Repository, index: ImageIndex, folder: Path, report: Report
) -> tuple[FileSystem, Path]:
    meter = Meter("fetch", index.metadata.size + index.data.size, report)
    metadata, packed, device = folder / "metadata.erofs", folder / "data", folder / "device"
    await fetch_metadata(repository, index, metadata, meter.add)
    system = await asyncio.to_thread(read_metadata, metadata)
    if system.device_blocks * BLOCK_SIZE != index.data.device_size:
        raise ArtifactError(index.metadata.digest, "is of a device of another size than its index says")
    file = await asyncio.to_thread(packed.open, "wb")
    with file:
        await repository.blobs.download(
            Descriptor(DATA_MEDIA_TYPE, index.data.digest, index.data.size), file, meter.add
        )
    await asyncio.to_thread(_write_device, index, packed, device)
    packed.unlink()
    return system, device


def _write_device(index: ImageIndex, packed: Path, device: Path) -> None:
    with device.open("wb") as out:
        for plain in _plain_sectors(index, packed):
            out.write(plain)


def _plain_sectors(index: ImageIndex, packed: Path) -> Iterator[bytes]:
    with packed.open("rb") as source:
        for number, sector in enumerate(index.data.sectors):
            yield _plain(index, number, sector, source.read(sector.length))


def _plain(index: ImageIndex, number: int, sector: Sector, raw: bytes) -> bytes:
    if f"sha256:{hashlib.sha256(raw).hexdigest()}" != sector.digest:
        raise ArtifactError(index.data.digest, f"sector {number} is not what its index says")
    try:
        plain = unpack_frame(raw, sector.plain_length)
    except zstandard.ZstdError as error:
        raise ArtifactError(index.data.digest, f"sector {number} does not decompress: {error}") from error
    if f"sha256:{hashlib.sha256(plain).hexdigest()}" != sector.plain_digest:
        raise ArtifactError(index.data.digest, f"sector {number} unpacks to something other than its index says")
    return plain
