"""An image's layer files made into its metadata, its data and its index: everything but the registry."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import zstandard

from copydesk.imagefetcher.convert.errors import LayerError
from copydesk.imagefetcher.convert.flatten import Flattener
from copydesk.imagefetcher.convert.layer_stream import LayerStream
from copydesk.imagefetcher.convert.order import DevicePlan, cold_order, plan_device, readings
from copydesk.imagefetcher.convert.sectors import LEVEL, device_tag, write_data
from copydesk.imagefetcher.convert.spool import Spool
from copydesk.imagefetcher.convert.tar_reader import TarReader
from copydesk.imagefetcher.erofs.writer import write_metadata
from copydesk.imagefetcher.index import (
    BLOCK_SIZE,
    SECTOR_SIZE,
    VERSION,
    Data,
    ImageIndex,
    Metadata,
    Original,
    Platform,
)
from copydesk.imagefetcher.trace import Trace
from copydesk.imagefetcher.tree import Extent, Node, walk

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer in a file, and the digest that its plain archive must have: its `diff_id` in the image's config."""

    path: Path
    diff_id: str


@dataclass(frozen=True, slots=True)
class Built:
    """What a conversion gives: the index, and the blobs as files; `files` counts names, `plain_bytes` contents."""

    index: ImageIndex
    metadata: Path
    data: Path
    files: int
    plain_bytes: int
    hot_bytes: int
    dropped_xattrs: int


class DiffIdError(LayerError):
    """A layer whose plain bytes are not those that the image's configuration names."""

    def __init__(self, expected: str, found: str) -> None:
        super().__init__(f"unpacks to {found}, the image's configuration says {expected}")
        self.expected = expected
        self.found = found


def flatten_layer(flattener: Flattener, layer: Layer, progress: Progress = lambda _: None) -> None:
    """Puts one layer over the tree; `progress` hears of plain bytes read.

    Raises LayerError, and DiffIdError for a layer that is not what it should be.
    """
    with layer.path.open("rb") as file:
        stream = LayerStream(file, progress)
        flattener.apply(TarReader(stream))
        diff_id = stream.drain()
    if diff_id != layer.diff_id:
        raise DiffIdError(layer.diff_id, diff_id)


def build_image(
    flattener: Flattener,
    spool: Spool,
    original: Original,
    platform: Platform,
    folder: Path,
    trace: Trace | None = None,
    sector_size: int = SECTOR_SIZE,
    progress: Progress = lambda _: None,
) -> Built:
    """Makes the two blobs in `folder` from a tree and its contents; `progress` hears of plain bytes packed."""
    plan = _plan(flattener.root, spool, trace, sector_size)
    data_path, metadata_path = folder / "data", folder / "metadata"
    with data_path.open("wb") as out:
        data = write_data(plan, spool, sector_size, out, progress)
    metadata = _write_metadata(flattener.root, plan, data, metadata_path)
    hot_sectors = -(-plan.hot_blocks * BLOCK_SIZE // sector_size)
    index = ImageIndex(VERSION, original, platform, metadata, data, tuple(range(hot_sectors)))
    return Built(
        index=index,
        metadata=metadata_path,
        data=data_path,
        files=sum(1 for _ in walk(flattener.root)) - 1,
        plain_bytes=spool.size,
        hot_bytes=plan.hot_blocks * BLOCK_SIZE,
        dropped_xattrs=flattener.dropped_xattrs,
    )


def _plan(root: Node, spool: Spool, trace: Trace | None, sector_size: int) -> DevicePlan:
    hot = readings(root, trace) if trace else []
    return plan_device(spool.contents, cold_order(root), hot, sector_size)


def _write_metadata(root: Node, plan: DevicePlan, data: Data, path: Path) -> Metadata:
    plain = path.with_suffix(".erofs")
    nothing: Sequence[Extent] = ()
    with plain.open("w+b") as out:
        write_metadata(
            root, lambda node: plan.extents.get(node.content, nothing), plan.blocks, device_tag(data), out
        )
    try:
        return _compressed(plain, path)
    finally:
        plain.unlink()


def _compressed(plain: Path, packed: Path) -> Metadata:
    size = plain.stat().st_size
    compressor = zstandard.ZstdCompressor(level=LEVEL, write_content_size=True)
    with plain.open("rb") as source, packed.open("wb") as out:
        compressor.copy_stream(source, out, size=size)
    return Metadata(file_digest(packed), packed.stat().st_size, file_digest(plain), size)


def file_digest(path: Path) -> str:
    """The digest of a file, as registries write it."""
    with path.open("rb") as file:
        return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
