"""An image in a registry, converted and pushed beside itself: each platform of it."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from copydesk.imagefetcher.artifact import DAMAGED, Artifact, artifact_manifest, find_artifact, push_artifact
from copydesk.imagefetcher.convert.build import Built, build_image
from copydesk.imagefetcher.convert.spool import Spool
from copydesk.imagefetcher.convert.unpack import Meter, Report, unpack_image
from copydesk.imagefetcher.index import DATA_MEDIA_TYPE, METADATA_MEDIA_TYPE, Original, Platform, encode
from copydesk.imagefetcher.registry.image import Image
from copydesk.imagefetcher.registry.manifest import Descriptor
from copydesk.imagefetcher.registry.repository import Repository
from copydesk.imagefetcher.trace import Trace


@dataclass(frozen=True, slots=True)
class Converted:
    """What became of one platform's image; sizes in bytes. `is_new` is False if just this artifact was there."""

    platform: Platform
    image: str
    artifact: str
    is_new: bool
    layers_size: int
    metadata_size: int
    data_size: int
    device_size: int
    sectors: int
    prefetch: int
    hot_size: int
    files: int
    dropped_xattrs: int


async def convert_images(
    source: Repository,
    target: Repository,
    images: Sequence[Image],
    trace: Trace | None = None,
    work_dir: Path | None = None,
    report: Callable[[Platform, str, int, int], None] = lambda *_: None,
) -> list[Converted]:
    """Converts images of `source` and pushes their artifacts to `target`, which must have the images themselves.

    Contents pass through a temporary folder in `work_dir`: it takes up to the images' plain size and their packed
    size on top. Raises LayerError for an image that is hostile or damaged, SpoolFullError, RegistryError.
    """
    done = []
    for image in images:
        with tempfile.TemporaryDirectory(prefix="copydesk-image-", dir=work_dir) as folder:
            own = _for_platform(report, image.platform)
            done.append(await _convert(source, target, image, trace, Path(folder), own))
    return done


def _for_platform(report: Callable[[Platform, str, int, int], None], platform: Platform) -> Report:
    return lambda phase, done, total: report(platform, phase, done, total)


async def _convert(
    source: Repository, target: Repository, image: Image, trace: Trace | None, folder: Path, report: Report
) -> Converted:
    with Spool(folder) as spool:
        flattener = await unpack_image(source, image, folder, spool, report)
        descriptor = image.fetched.descriptor
        original = Original(
            descriptor.media_type, descriptor.digest, descriptor.size, image.manifest.config.digest
        )
        meter = Meter("pack", spool.size, report)
        async with meter.stopping():
            built = await asyncio.to_thread(
                build_image, flattener, spool, original, image.platform, folder, trace, progress=meter.add
            )
    artifact, is_new = await _push(target, built, report)
    return _summary(image, built, artifact, is_new)


async def _push(target: Repository, built: Built, report: Report) -> tuple[Artifact, bool]:
    index = built.index
    blob = encode(index)
    try:
        present = await find_artifact(target, index.image.digest)
    except DAMAGED:
        present = None  # This one takes its place.
    revision = 0
    if present is not None:
        same = artifact_manifest(index, blob, present.revision)
        if same.digest == present.digest:
            return present, False
        revision = present.revision + 1
    meter = Meter("push", index.metadata.size + index.data.size, report)
    metadata = Descriptor(METADATA_MEDIA_TYPE, index.metadata.digest, index.metadata.size)
    data = Descriptor(DATA_MEDIA_TYPE, index.data.digest, index.data.size)
    await target.blobs.upload(metadata, built.metadata, meter.add)
    await target.blobs.upload(data, built.data, meter.add)
    await target.blobs.upload_bytes(blob)
    artifact = artifact_manifest(index, blob, revision)
    await push_artifact(target, artifact)
    return artifact, True


def _summary(image: Image, built: Built, artifact: Artifact, is_new: bool) -> Converted:
    index = built.index
    return Converted(
        platform=image.platform,
        image=image.fetched.digest,
        artifact=artifact.digest,
        is_new=is_new,
        layers_size=sum(layer.size for layer in image.manifest.layers),
        metadata_size=index.metadata.size,
        data_size=index.data.size,
        device_size=index.data.device_size,
        sectors=len(index.data.sectors),
        prefetch=len(index.prefetch),
        hot_size=built.hot_bytes,
        files=built.files,
        dropped_xattrs=built.dropped_xattrs,
    )
