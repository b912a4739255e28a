"""Serves the file system: threads that take requests from the kernel and answer them.

In Python and not by libfuse: what counts is that a miss never holds a thread, and that a descriptor of another
process can be taken over. Warm reads do not come here at all, as the kernel has their pages.
"""

from __future__ import annotations

import errno
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from copydesk.common.telemetry import get_logger
from copydesk.imagefetcher.device import wire
from copydesk.imagefetcher.device.channel import Channel
from copydesk.imagefetcher.device.reader import is_being_killed
from copydesk.imagefetcher.device.volume import Piece, Volume
from copydesk.imagefetcher.device.wire import Node, Operation, Request
from copydesk.imagefetcher.fetch.place import Place

_LOOK_S = 0.25
_OPENS: dict[int, int] = {Operation.OPEN: 1, Operation.RELEASE: -1}

_log = get_logger(__name__)


class Contents(Protocol):
    """Where the bytes come from; both are called from any thread."""

    def cached(self, place: Place, start: int, stop: int) -> bytes | None:
        """Return a part of a sector if it is here."""

    def fetch(self, places: Sequence[Place], then: Callable[[Sequence[bytes] | None], None]) -> None:
        """Have `then` called with whole sectors once they are here, or with None."""


class DeviceServer:
    """A file for each volume, named by its image, in one folder."""

    def __init__(self, channel: Channel, contents: Contents, threads: int) -> None:
        self._channel = channel
        self._contents = contents
        self._volumes: dict[int, Volume] = {}
        self._names: dict[str, Volume] = {}
        self._stopped = False
        self._open: Counter[int] = Counter()
        self._lock = threading.Lock()
        self._waiting: dict[int, int] = {}
        self._threads = [
            threading.Thread(target=self._serve, name=f"device-{number}", daemon=True) for number in range(threads)
        ]

    def start(self) -> None:
        """Begin to answer."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the threads, and answer nothing more: the kernel sends it again to whoever takes over."""
        self._stopped = True
        self._channel.wake()
        for thread in self._threads:
            thread.join()

    def add(self, volume: Volume) -> None:
        """Show a volume."""
        self._volumes[volume.node] = volume
        self._names[volume.name] = volume

    def in_use(self, volume: Volume) -> bool:
        """Whether a file system is mounted from a volume, also one that was detached and is still read."""
        return self._open[volume.node] > 0

    def assume_used(self) -> None:
        """Take every volume for used: of what was opened before this process the kernel says nothing."""
        self._open.update(self._volumes.keys())

    def remove(self, volume: Volume) -> None:
        """Show a volume no more; who has it open gets ESTALE."""
        self._volumes.pop(volume.node, None)
        self._names.pop(volume.name, None)

    def _serve(self) -> None:
        while True:
            try:
                message = self._channel.receive()
            except OSError as error:
                _log.error("device_lost", error=str(error))
                return
            if message is None:
                return
            request = wire.parse(message)
            try:
                self._answer(request)
            except Exception:  # a reader must not wait for ever, nor the thread end
                _log.exception("device_request_failed", operation=request.operation)
                self._channel.reply(request.unique, error=errno.EIO)

    def _answer(self, request: Request) -> None:
        if request.operation == Operation.READ:
            self._read(request)
        elif request.operation == Operation.INTERRUPT:
            self._interrupt(request)
        elif request.operation not in wire.UNANSWERED:
            body, error = self._describe(request)
            self._channel.reply(request.unique, [body] if body else [], error)

    def _describe(self, request: Request) -> tuple[bytes, int]:
        """Return the answer to anything but a read, or an errno."""
        self._count(request)
        match request.operation:
            case Operation.INIT:
                return wire.init_reply(request.body), 0
            case Operation.LOOKUP:
                return self._look_up(bytes(request.body).rstrip(b"\0").decode("utf-8", "replace"))
            case Operation.GETATTR | Operation.OPEN | Operation.OPENDIR:
                return self._about(request)
            case Operation.READDIR:
                names = [(volume.name, volume.node) for volume in list(self._volumes.values())]
                return wire.listing(names, *wire.read_range(request.body)), 0
            case Operation.STATFS:
                return wire.file_system(sum(volume.size for volume in list(self._volumes.values()))), 0
            case Operation.RELEASE | Operation.RELEASEDIR | Operation.FLUSH | Operation.DESTROY:
                return b"", 0
        return b"", errno.ENOSYS

    def _count(self, request: Request) -> None:
        change = _OPENS.get(request.operation, 0)
        if change and request.node in self._volumes:
            with self._lock:
                self._open[request.node] += change

    def _look_up(self, name: str) -> tuple[bytes, int]:
        volume = self._names.get(name)
        return (wire.entry(Node(volume.node, volume.size)), 0) if volume is not None else (b"", errno.ENOENT)

    def _about(self, request: Request) -> tuple[bytes, int]:
        volume = self._volumes.get(request.node)
        if volume is None and request.node != wire.ROOT_NODE:
            return b"", errno.ESTALE
        node = Node(request.node, None if volume is None else volume.size)
        return wire.attributes(node) if request.operation == Operation.GETATTR else wire.opened(node), 0

    def _read(self, request: Request) -> None:
        volume = self._volumes.get(request.node)
        if volume is None:
            self._channel.reply(request.unique, error=errno.ESTALE)
            return
        pieces = volume.pieces(*wire.read_range(request.body))
        parts = [self._contents.cached(piece.place, piece.start, piece.stop) for piece in pieces]
        missing = [at for at, part in enumerate(parts) if part is None]
        if missing:
            self._read_later(request, pieces, parts, missing)
        else:
            self._channel.reply(request.unique, [part for part in parts if part is not None])

    def _interrupt(self, request: Request) -> None:
        """Let a reader go that was killed: it cannot end before its read does, however long the sector takes.

        Who reads the same page beside it asks again by itself. Where another thread is just taking the read in,
        the kernel is to say it again; one that was answered it has forgotten.
        """
        if wire.interrupted(request.body) in self._waiting:
            self._let_go(wire.interrupted(request.body))
        else:
            self._channel.reply(request.unique, error=errno.EAGAIN)

    def _let_go(self, unique: int) -> None:
        """Answer a read whose reader is being killed, now or once it is.

        The kernel tells of the first signal only, whatever it is. Most are handled (Go's runtime interrupts its
        own threads all the time), and an answer of any kind but the content would be an error for the program.
        """
        thread = self._waiting.get(unique)
        if thread is None or self._stopped:
            return
        if not is_being_killed(thread):
            again = threading.Timer(_LOOK_S, self._let_go, [unique])
            again.daemon = True
            again.start()
        elif self._settle(unique):
            self._channel.reply(unique, error=errno.EINTR)

    def _settle(self, unique: int) -> bool:
        """Whether a read is still to be answered; from now on it is not."""
        with self._lock:
            return self._waiting.pop(unique, None) is not None

    def _read_later(
        self, request: Request, pieces: list[Piece], parts: list[bytes | None], missing: list[int]
    ) -> None:
        unique = request.unique

        def then(contents: Sequence[bytes] | None) -> None:
            if self._stopped or not self._settle(unique):
                return
            if contents is None:
                self._channel.reply(unique, error=errno.EIO)
                return
            for at, content in zip(missing, contents, strict=True):
                parts[at] = content[pieces[at].start : pieces[at].stop]
            self._channel.reply(unique, [part for part in parts if part is not None])

        with self._lock:
            self._waiting[unique] = request.thread
        self._contents.fetch([pieces[at].place for at in missing], then)
