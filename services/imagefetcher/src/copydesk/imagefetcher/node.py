"""The node: images, their mounts, and what is fetched ahead for them."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from copydesk.common.telemetry import get_logger
from copydesk.imagefetcher.device.image_mount import mount_image
from copydesk.imagefetcher.device.mounts import Mounted, mounted_at, unmount
from copydesk.imagefetcher.device.server import DeviceServer
from copydesk.imagefetcher.errors import ImageError
from copydesk.imagefetcher.fetch.completion import prefetch
from copydesk.imagefetcher.fetch.content import Content
from copydesk.imagefetcher.fetch.place import Place
from copydesk.imagefetcher.library import KnownImage, Library
from copydesk.imagefetcher.store.ledger import Ledger, LedgerError, MountRow
from copydesk.imagefetcher.upstream import Upstream, UpstreamError

FIND_S = 60.0
METADATA_S = 600.0
"""How long an image may be looked for, and its metadata fetched, before it is pulled normally."""

_EROFS = "erofs"

_log = get_logger(__name__)


class TargetError(ImageError):
    """A path at which nothing can be mounted or unmounted: it carries path and reason."""

    def __init__(self, target: Path, reason: str) -> None:
        self.target = target
        self.reason = reason
        super().__init__(f"{target}: {reason}")


class Node:
    """Mounts images at paths, by way of the files that `devices` shows in `device_folder`.

    `loop` forces loop devices. `changed` is called whenever there are other mounts than before.
    """

    def __init__(
        self,
        library: Library,
        ledger: Ledger,
        content: Content,
        devices: DeviceServer,
        device_folder: Path,
        upstream: Upstream,
        *,
        loop: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._library = library
        self._ledger = ledger
        self._content = content
        self._devices = devices
        self._device_folder = device_folder
        self._upstream = upstream
        self._loop_devices = loop
        self._clock = clock
        self._mounts: dict[str, MountRow] = {}
        self._broken: dict[str, str] = {}
        self._acquiring: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._mounting: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._unfinished: set[asyncio.Task[None]] = set()
        self.changed: Callable[[], None] = lambda: None

    @property
    def mounts(self) -> list[MountRow]:
        """What is mounted, the oldest first."""
        return list(self._mounts.values())

    @property
    def broken(self) -> dict[str, str]:
        """Mounts of an earlier daemon that could not be restored, with the reason."""
        return dict(self._broken)

    def is_mounted(self, target: Path) -> bool:
        """Whether an image is mounted at `target`, as far as this process has seen to it."""
        return str(target) in self._mounts

    def mounted_images(self) -> list[KnownImage]:
        """Images that are mounted, each once, in the order of their mounts."""
        known = (self._library.get(image) for image in dict.fromkeys(row.image for row in self.mounts))
        return [image for image in known if image is not None]

    def wanted(self) -> list[Place]:
        """All sectors of mounted images, those of each start-up first."""
        places = []
        for known in self.mounted_images():
            hot = known.index.prefetch
            rest = sorted(set(range(len(known.index.data.sectors))) - set(hot))
            places += [known.volume.place(number) for number in (*hot, *rest)]
        return places

    def show_devices(self) -> None:
        """Show the files of all images; to be done before the kernel can ask for them."""
        for known in self._library.all():
            self._devices.add(known.volume)

    async def restore(self, *, resumed: bool) -> None:
        """Bring back the mounts of the daemon before this one; if `resumed`, they have outlived it."""
        for row in self._ledger.mounts():
            try:
                await self._restore(row, resumed=resumed)
            except (ImageError, OSError) as error:  # one bad image must not keep the others away
                self._broken[row.target] = str(error)
                _log.warning("mount_not_restored", target=row.target, image=row.image, error=str(error))

    async def mount(self, reference: str, target: Path) -> KnownImage:
        """Mount the image at `target`, which is made if it is not there; what is mounted there already is fine.

        Raises NotConvertedError, UpstreamError, IndexFormatError, MetadataError, MountError, TargetError.
        """
        if not target.is_absolute() or ".." in target.parts or "\0" in str(target):
            raise TargetError(target, "the path must be absolute, and one that can be")
        known = await self.acquire(reference)
        # Who asked may be gone in the middle of it, as a pull that is given up; what is mounted must be known.
        work = asyncio.create_task(self._mount_in_turn(known, target))
        self._unfinished.add(work)
        work.add_done_callback(self._unfinished.discard)
        await asyncio.shield(work)
        prefetch(self._content, [known.volume.place(number) for number in known.index.prefetch])
        return known

    async def unmount(self, target: Path, *, detach: bool = False) -> None:
        """Unmount; with `detach` at once, even if it is used. Raises TargetError, MountError (EBUSY)."""
        async with self._mounting[str(target)]:
            if str(target) not in self._mounts and str(target) not in self._broken:
                raise TargetError(target, "no image is mounted here")
            found = await asyncio.to_thread(_erofs_at, target)
            if found is not None:
                await asyncio.to_thread(unmount, target, detach=detach)
            self._ledger.remove_mount(str(target))
            self._mounts.pop(str(target), None)
            self._broken.pop(str(target), None)
        _log.info("unmounted", target=str(target))
        self.changed()

    async def prefetch(self, reference: str, *, everything: bool) -> tuple[KnownImage, int]:
        """Fetch the start-up's sectors (or all) of an image ahead; return it and how many are on their way."""
        known = await self.acquire(reference)
        numbers = range(len(known.index.data.sectors)) if everything else known.index.prefetch
        return known, prefetch(self._content, [known.volume.place(number) for number in numbers])

    async def acquire(self, reference: str) -> KnownImage:
        """Return an image with its metadata; one that is known is used while its registry cannot be asked."""
        async with self._acquiring[reference]:
            try:
                async with _deadline(reference, FIND_S):
                    converted = await self._upstream.find(reference)
            except UpstreamError as error:
                known = self._library.find(reference)
                if known is None or not await asyncio.to_thread(self._library.has_metadata, known):
                    raise
                _log.warning("registry_away", reference=reference, error=str(error))
                return known
            known = self._library.add(reference, converted.index)
            if not await asyncio.to_thread(self._library.has_metadata, known):
                incoming = self._library.incoming(known)
                async with _deadline(reference, METADATA_S):
                    await self._upstream.fetch_metadata(reference, known.index, incoming)
                await asyncio.to_thread(self._library.accept_metadata, known)
            self._devices.add(known.volume)
            return known

    def forget_unmounted(self) -> int:
        """Forget all images that are not mounted, nor still read; return how many those were."""
        used = {row.image for row in self.mounts}
        unused = [
            known
            for known in self._library.all()
            if known.image not in used and not self._devices.in_use(known.volume)
        ]
        for known in unused:
            self._devices.remove(known.volume)
            self._library.remove(known)
        return len(unused)

    async def _restore(self, row: MountRow, *, resumed: bool) -> None:
        target = Path(row.target)
        found = await asyncio.to_thread(_erofs_at, target)
        if found is not None and resumed:
            self._mounts[row.target] = row
            return
        known = self._library.get(row.image)
        if known is None:
            raise TargetError(target, "its image is not known any more")
        if not await asyncio.to_thread(self._library.has_metadata, known):
            known = await self.acquire(known.reference)
        await self._mount(known, target)
        _log.info("mount_restored", target=row.target, image=row.image)

    async def _mount_in_turn(self, known: KnownImage, target: Path) -> None:
        async with self._mounting[str(target)]:
            await self._mount(known, target)

    async def _mount(self, known: KnownImage, target: Path) -> None:
        present = self._mounts.get(str(target))
        found = await asyncio.to_thread(_erofs_at, target)
        if present is not None and found is not None:
            if present.image != known.image:
                raise TargetError(target, "another image is mounted here")
            return
        if found is not None:  # of a daemon that was killed in between, or whose device is gone
            await asyncio.to_thread(unmount, target, detach=True)
        await asyncio.to_thread(self._mount_now, known, target)
        row = MountRow(str(target), known.image, self._clock())
        try:
            self._ledger.add_mount(row.target, row.image, row.mounted)
        except LedgerError:
            await asyncio.to_thread(unmount, target, detach=True)
            raise
        self._mounts[row.target] = row
        self._broken.pop(row.target, None)
        _log.info("mounted", target=row.target, image=known.image, reference=known.reference)
        self.changed()

    def _mount_now(self, known: KnownImage, target: Path) -> None:
        try:
            target.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TargetError(target, error.strerror or str(error)) from error
        device = self._device_folder / known.volume.name if known.index.data.sectors else None
        mount_image(known.metadata, device, target, loop=self._loop_devices)


@asynccontextmanager
async def _deadline(reference: str, seconds: float) -> AsyncIterator[None]:
    """A registry that sends a byte now and then is never silent for long enough to be given up otherwise."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise UpstreamError(reference, f"its registry took more than {seconds:.0f} s") from error


def _erofs_at(target: Path) -> Mounted | None:
    found = mounted_at(target)
    return found if found is not None and found.kind == _EROFS else None
