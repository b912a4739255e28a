"""Notes what the kernel reads from an image's device, and answers it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from copydesk.imagefetcher.device.server import Contents
from copydesk.imagefetcher.fetch.place import Place
from copydesk.imagefetcher.tracing.ranges import DeviceRead
from copydesk.imagefetcher.tracing.staging import PlainDevice


class Recorder(Contents):
    """Everything is here, so nothing is ever fetched; `begin` starts the clock, `end` stops taking notes."""

    def __init__(self, device: PlainDevice, clock: Callable[[], float] = time.monotonic) -> None:
        self._device = device
        self._clock = clock
        self._lock = threading.Lock()
        self._reads: list[DeviceRead] = []
        self._bytes = 0
        self._began: float | None = None

    @property
    def bytes_read(self) -> int:
        """How much was read so far, in bytes."""
        return self._bytes

    def begin(self) -> None:
        """Take notes from now on."""
        with self._lock:
            self._began = self._clock()

    def end(self) -> list[DeviceRead]:
        """Take no more notes; what was read, in order."""
        with self._lock:
            self._began = None
            return list(self._reads)

    def cached(self, place: Place, start: int, stop: int) -> bytes | None:
        """Answer a read, and note it; from any thread."""
        base = place.number * place.data.sector_size
        with self._lock:
            if self._began is not None:
                self._reads.append(DeviceRead(base + start, stop - start, self._clock() - self._began))
                self._bytes += stop - start
        return self._device.read(base + start, base + stop)

    def fetch(self, places: Sequence[Place], then: Callable[[Sequence[bytes] | None], None]) -> None:
        """Never called, since `cached` always answers; whoever did would get an error."""
        then(None)
