"""An image made ready to be run here, without an artifact: its metadata as a file, its contents in the spool."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from copydesk.imagefetcher.convert.order import DevicePlan, Piece, cold_order, plan_device
from copydesk.imagefetcher.convert.spool import Spool
from copydesk.imagefetcher.convert.unpack import Report, unpack_image
from copydesk.imagefetcher.device.volume import Volume
from copydesk.imagefetcher.erofs.writer import write_metadata
from copydesk.imagefetcher.index import BLOCK_SIZE, SECTOR_SIZE, Data, Sector
from copydesk.imagefetcher.registry.image import Image
from copydesk.imagefetcher.registry.repository import Repository
from copydesk.imagefetcher.tree import Extent, Node

VOLUME_NAME = "staged"
_NODE = 16
"""The number of its file; 1 is the folder that it is in."""


class PlainDevice:
    """The device of a plan, byte by byte, read from the spool."""

    def __init__(self, pieces: Sequence[Piece], spool: Spool) -> None:
        self._pieces = pieces
        self._spool = spool
        self._starts: list[int] = []
        at = 0
        for piece in pieces:
            self._starts.append(at)
            at += piece.blocks

    def read(self, start: int, stop: int) -> bytes:
        """Bytes `start` to `stop` of the device."""
        first, last = start // BLOCK_SIZE, -(-stop // BLOCK_SIZE)
        out = bytearray()
        number = bisect_right(self._starts, first) - 1
        at = first
        while at < last:
            piece = self._pieces[number]
            inside = at - self._starts[number]
            count = min(piece.blocks - inside, last - at)
            out += (
                bytes(count * BLOCK_SIZE)
                if piece.spool_block < 0
                else self._spool.read(piece.spool_block + inside, count)
            )
            at += count
            number += 1
        return bytes(out[start - first * BLOCK_SIZE : stop - first * BLOCK_SIZE])


@dataclass(frozen=True, slots=True)
class Staged:
    """The tree, where its contents lie on the device, the file to mount, and the device to mount it on."""

    root: Node
    metadata: Path
    device: PlainDevice
    volume: Volume
    extents: dict[int, list[Extent]] = field(repr=False)


async def stage_image(
    repository: Repository, image: Image, folder: Path, spool: Spool, report: Report = lambda *_: None
) -> Staged:
    """Fetch and flatten an image, and lay it out as a conversion without a trace does.

    Nothing is compressed and nothing pushed. Raises LayerError, SpoolFullError, RegistryError.
    """
    flattener = await unpack_image(repository, image, folder, spool, report)
    return await asyncio.to_thread(stage_tree, flattener.root, spool, folder)


def stage_tree(root: Node, spool: Spool, folder: Path) -> Staged:
    """Lay a tree out; its metadata goes into `folder`."""
    plan = plan_device(spool.contents, cold_order(root), (), SECTOR_SIZE)
    metadata = folder / "metadata.erofs"
    nothing: Sequence[Extent] = ()
    with metadata.open("w+b") as out:
        write_metadata(root, lambda node: plan.extents.get(node.content, nothing), plan.blocks, VOLUME_NAME, out)
    volume = Volume(_NODE, VOLUME_NAME, _unfetched(plan))
    return Staged(root, metadata, PlainDevice(plan.pieces, spool), volume, plan.extents)


def _unfetched(plan: DevicePlan) -> Data:
    """The sectors of a device that is read here only: they have lengths, but were never packed or named."""
    size = plan.blocks * BLOCK_SIZE
    lengths = [min(SECTOR_SIZE, size - start) for start in range(0, size, SECTOR_SIZE)]
    return Data("", 0, size, SECTOR_SIZE, tuple(Sector(0, 0, "", length, "") for length in lengths))
