"""Snapshots with their folders and mounts: what the calls of containerd do."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from copydesk.common.telemetry import get_logger
from copydesk.imagefetcher.errors import ImageError
from copydesk.imagefetcher.node import Node, TargetError
from copydesk.imagefetcher.snapshotter.catalogue import Catalogue, Kind, Snapshot
from copydesk.imagefetcher.snapshotter.errors import SnapshotExistsError
from copydesk.imagefetcher.snapshotter.labels import Layer, layer_of
from copydesk.imagefetcher.snapshotter.stack import MountSpec, missing_layer, mounts_of, stack_of
from copydesk.imagefetcher.upstream import Upstream

NORMAL_S = 60.0
"""For how long an image that could not be mounted is not tried again: else each of its layers would."""

_log = get_logger(__name__)


class Snapshots:
    """Snapshots in `folder`, with lazily loaded images that `node` mounts and layers from `upstream`."""

    def __init__(
        self,
        folder: Path,
        catalogue: Catalogue,
        node: Node,
        upstream: Upstream,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._catalogue = catalogue
        self._node = node
        self._upstream = upstream
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._normal: dict[str, float] = {}
        self._mounting: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        folder.mkdir(parents=True, exist_ok=True)

    async def prepare(self, key: str, parent: str, labels: dict[str, str]) -> list[MountSpec]:
        """Make an active snapshot, for a container or for a layer to be unpacked into.

        Raises SnapshotExistsError also for a layer that needs no unpacking, as the contract has it: then the
        layer's own snapshot is there. Other SnapshotErrors, MountError.
        """
        layer = layer_of(labels)
        if layer is not None and await self._is_lazy(layer):
            self._add_layer(layer, key, parent, labels)
            raise SnapshotExistsError(layer.target, "is loaded lazily")
        return await self._create(key, parent, labels, Kind.ACTIVE)

    async def view(self, key: str, parent: str, labels: dict[str, str]) -> list[MountSpec]:
        """Make a snapshot that is only looked at. Raises SnapshotErrors, MountError."""
        return await self._create(key, parent, labels, Kind.VIEW)

    async def mounts(self, key: str) -> list[MountSpec]:
        """Return the mounts of a snapshot. Raises SnapshotErrors, and any ImageError for an image that is away."""
        snapshot = self._catalogue.get(key)
        stack = stack_of(self._catalogue.ancestry(snapshot.parent) if snapshot.parent else [])
        below = [self._folder / str(number) / "fs" for number in stack.layers]
        if stack.image:
            below.append(await self._mounted(stack.image))
        return mounts_of(self._folder, snapshot, below)

    def commit(self, key: str, name: str, labels: dict[str, str]) -> None:
        """Make an active snapshot final. Raises SnapshotErrors."""
        self._catalogue.commit(key, name, labels, self._clock())

    async def remove(self, key: str) -> None:
        """Remove a snapshot, and unmount the image that it was the last part of. Raises SnapshotErrors."""
        gone = self._catalogue.remove(key)
        await asyncio.to_thread(shutil.rmtree, self._folder / str(gone.id), ignore_errors=True)
        if gone.image and not self._catalogue.uses(gone.image):
            await self._unmount(gone.image)

    def stat(self, key: str) -> Snapshot:
        """Return a snapshot. Raises SnapshotMissingError."""
        return self._catalogue.get(key)

    def relabel(self, key: str, labels: dict[str, str]) -> Snapshot:
        """Replace the labels of a snapshot. Raises SnapshotMissingError."""
        return self._catalogue.relabel(key, labels, self._clock())

    def all(self) -> list[Snapshot]:
        """Return every snapshot."""
        return self._catalogue.all()

    async def usage(self, key: str) -> tuple[int, int]:
        """Return how many bytes and files a snapshot takes on disk; what is loaded lazily belongs to the cache."""
        snapshot = self._catalogue.get(key)
        return (
            (0, 0) if snapshot.image else await asyncio.to_thread(_usage, self._folder / str(snapshot.id) / "fs")
        )

    async def settle(self) -> None:
        """Unmount images that no snapshot needs, as a process that was killed, or a pull given up, leaves them."""
        images = self._folder / "images"
        needed = {str(self._target(snapshot.image)) for snapshot in self._catalogue.all() if snapshot.image}
        for row in self._node.mounts:
            if Path(row.target).parent != images or row.target in needed:
                continue
            try:
                await self._node.unmount(Path(row.target), detach=True)
            except ImageError as error:
                _log.warning("unmount_failed", image=row.image, error=str(error))

    async def clean_up(self) -> None:
        """Remove folders and unmount images of no snapshot, as a process killed in between leaves them."""
        await self.settle()
        known = {str(snapshot.id) for snapshot in self._catalogue.all()} | {"images"}
        for path in await asyncio.to_thread(lambda: list(self._folder.iterdir())):
            if path.name not in known:
                await asyncio.to_thread(shutil.rmtree, path, ignore_errors=True)

    async def _create(self, key: str, parent: str, labels: dict[str, str], kind: Kind) -> list[MountSpec]:
        await self._have_layers(parent)
        snapshot = self._catalogue.add(key, parent, kind, labels, self._clock())
        try:
            await asyncio.to_thread(self._make_folders, snapshot)
            return await self.mounts(key)
        except (ImageError, OSError):
            await self.remove(key)
            raise

    async def _have_layers(self, parent: str) -> None:
        """Unpack layers that containerd believes to be there, but that are only parts of a lazily loaded image.

        It happens when an image that was not converted is based upon the same lowest layers as one that was.
        """
        ancestry = self._catalogue.ancestry(parent)
        at = missing_layer(ancestry)
        if at is None:
            return
        missing = ancestry[at]
        async with self._mounting[missing.name]:
            if missing_layer(self._catalogue.ancestry(parent)) is None:
                return
            _log.info("layers_unpacked", image=missing.image, layers=len(ancestry) - at)
            incoming = self._folder / f"incoming-{missing.id}"
            await asyncio.to_thread(shutil.rmtree, incoming, ignore_errors=True)
            await asyncio.to_thread(incoming.mkdir, 0o755)
            await self._upstream.unpack(missing.image, len(ancestry) - at, incoming)
            own = self._folder / str(missing.id)
            await asyncio.to_thread(shutil.rmtree, own, ignore_errors=True)
            await asyncio.to_thread(own.mkdir)
            await asyncio.to_thread(incoming.rename, own / "fs")
            self._catalogue.unpacked(missing.name, self._clock())

    def _make_folders(self, snapshot: Snapshot) -> None:
        own = self._folder / str(snapshot.id)
        (own / "fs").mkdir(parents=True, exist_ok=True)
        (own / "fs").chmod(0o755)
        (own / "work").mkdir(exist_ok=True)

    def _add_layer(self, layer: Layer, key: str, parent: str, labels: dict[str, str]) -> None:
        """Add the final snapshot of a layer, which containerd finds by its labels and parent.

        The name is one that was never used: what an earlier life of containerd has left must not be in the way.
        """
        self._catalogue.add(
            f"{key}/lazy", parent, Kind.COMMITTED, labels, self._clock(), layer.image, whole=layer.last
        )

    async def _is_lazy(self, layer: Layer) -> bool:
        """Mount the whole image already for its lowest layer: what fails later would leave empty layers below."""
        if self._loop.time() < self._normal.get(layer.image, 0.0):
            return False
        try:
            await self._mounted(layer.image)
        except Exception as error:  # whatever it is: a pod that starts later is better than one that does not
            if not isinstance(error, ImageError):
                _log.exception("mount_failed", image=layer.image)
            _log.info("pulled_normally", image=layer.image, reason=str(error))
            self._normal = {image: until for image, until in self._normal.items() if until > self._loop.time()}
            self._normal[layer.image] = self._loop.time() + NORMAL_S
            return False
        return True

    async def _mounted(self, image: str) -> Path:
        target = self._target(image)
        async with self._mounting[image]:
            if not self._node.is_mounted(target):
                await self._node.mount(image, target)
        return target

    async def _unmount(self, image: str) -> None:
        target = self._target(image)
        async with self._mounting[image]:
            if self._catalogue.uses(image):
                return  # somebody has pulled it again in the meantime
            try:
                await self._node.unmount(target, detach=True)
            except TargetError:
                return  # it was the last part of one that is unmounted already
            except ImageError as error:
                _log.warning("unmount_failed", image=image, error=str(error))
            with contextlib.suppress(OSError):
                target.rmdir()

    def _target(self, image: str) -> Path:
        return self._folder / "images" / image.rpartition("sha256:")[2][:32]


def _usage(folder: Path) -> tuple[int, int]:
    size = count = 0
    for parent, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            with contextlib.suppress(FileNotFoundError):
                size += (Path(parent) / name).lstat().st_blocks * 512
                count += 1
    return size, count + 1
