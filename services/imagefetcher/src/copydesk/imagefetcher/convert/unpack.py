"""Layers from a registry into a tree: the next is fetched while one is unpacked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from copydesk.imagefetcher.convert.build import Layer, flatten_layer
from copydesk.imagefetcher.convert.flatten import Flattener
from copydesk.imagefetcher.convert.spool import Spool
from copydesk.imagefetcher.errors import ImageError
from copydesk.imagefetcher.registry.image import Image
from copydesk.imagefetcher.registry.manifest import Descriptor
from copydesk.imagefetcher.registry.repository import Repository

Report = Callable[[str, int, int], None]
"""Hears of a phase (`fetch`, `pack`, `push`), what is done of it, and of how much, in bytes."""


class StoppedError(ImageError):
    """Work on a thread that nobody waits for any more."""


class Meter:
    """Adds up the progress of one phase for a Report; `stop` makes the thread that reports next give up."""

    def __init__(self, phase: str, total: int, report: Report) -> None:
        self._phase = phase
        self._total = total
        self._report = report
        self._done = 0
        self._stopped = threading.Event()

    def add(self, count: int) -> None:
        """`count` more bytes are done (or fewer, if negative)."""
        if self._stopped.is_set():
            raise StoppedError(f"{self._phase} was stopped")
        self._done += count
        self._report(self._phase, self._done, max(self._total, self._done))

    @asynccontextmanager
    async def stopping(self) -> AsyncIterator[None]:
        """Stops the thread when the one who waits for it is cancelled."""
        try:
            yield
        finally:
            self._stopped.set()


async def unpack_image(
    repository: Repository, image: Image, folder: Path, spool: Spool, report: Report
) -> Flattener:
    """Fetches and flattens every layer, through files in `folder`; raises LayerError, RegistryError."""
    flattener = Flattener(spool)
    layers = list(zip(image.manifest.layers, image.config.rootfs.diff_ids, strict=True))
    meter = Meter("fetch", sum(layer.size for layer, _ in layers), report)
    unpacked = Meter("unpack", 0, report)
    waiting: asyncio.Task[Path] | None = None
    try:
        async with unpacked.stopping():
            for number, (descriptor, diff_id) in enumerate(layers):
                fetching = waiting or _begin(repository, descriptor, folder / f"layer-{number}", meter)
                path = await fetching
                following = layers[number + 1][0] if number + 1 < len(layers) else None
                waiting = (
                    _begin(repository, following, folder / f"layer-{number + 1}", meter) if following else None
                )
                await asyncio.to_thread(flatten_layer, flattener, Layer(path, diff_id), unpacked.add)
                path.unlink()
    finally:
        if waiting is not None:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
    return flattener


def _begin(repository: Repository, descriptor: Descriptor, path: Path, meter: Meter) -> asyncio.Task[Path]:
    return asyncio.create_task(_fetch(repository, descriptor, path, meter))


async def _fetch(repository: Repository, descriptor: Descriptor, path: Path, meter: Meter) -> Path:
    file = await asyncio.to_thread(path.open, "wb")
    with file:
        await repository.blobs.download(descriptor, file, meter.add)
    return path
