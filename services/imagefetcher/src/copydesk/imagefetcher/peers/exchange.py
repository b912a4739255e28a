"""Says over NATS which sectors this node has, and hears what others say."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence

from copydesk.common.bus import Bus
from copydesk.common.messages import BlocksReport, blocks_subject
from copydesk.imagefetcher.library import KnownImage
from copydesk.imagefetcher.peers.bitmap import pack
from copydesk.imagefetcher.peers.directory import PeerDirectory

TICK_S = 1.0
REPEAT_S = 10.0
"""How often a node speaks of an image though nothing has changed."""
LONGEST_ANSWER_S = 0.1
"""Within this time a newcomer is answered, each at a moment of its own."""


class PeerExchange:
    """Full statements, one an image, at most one a second; a newcomer asks for them at once."""

    def __init__(
        self,
        bus: Bus,
        directory: PeerDirectory,
        *,
        node: str,
        address: tuple[str, int],
        images: Callable[[], Sequence[KnownImage]],
        held: Callable[[str], bool],
    ) -> None:
        self._bus = bus
        self._directory = directory
        self._node = node
        self._host, self._port = address
        self._images = images
        self._held = held
        self._started_at = time.time()
        self._sequence = 0
        self._answering: set[str] = set()
        self._said: dict[str, tuple[bytes, float]] = {}
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Look at once whether there are new images."""
        self._wake.set()

    async def run(self) -> None:
        """Speak and listen for ever."""
        await self._bus.subscribe(blocks_subject("*"), BlocksReport, self._hear)
        loop = asyncio.get_running_loop()
        since: float | None = None
        while True:
            if self._bus.connected_since != since:
                since = self._bus.connected_since
                self._said.clear()
                self._directory.watch(set())
            if since is not None:
                self._speak(loop.time())
            await self._rest()

    def _speak(self, now: float) -> None:
        images = {known.image: known for known in self._images()}
        new = self._directory.watch(set(images))
        for image, known in images.items():
            held = pack(self._held(sector.plain_digest) for sector in known.index.data.sectors)
            before, when = self._said.get(image, (b"", -REPEAT_S))
            if held == before and now - when < REPEAT_S and image not in new:
                continue
            self._said[image] = (held, now)
            self._publish(image, held, asks=image in new)

    def _publish(self, image: str, held: bytes, *, asks: bool) -> None:
        self._sequence += 1
        report = BlocksReport(
            image=image,
            node=self._node,
            host=self._host,
            port=self._port,
            started_at=self._started_at,
            sequence=self._sequence,
            held=held,
            asks=asks,
        )
        self._bus.publish(blocks_subject(image.removeprefix("sha256:")), report)

    def _hear(self, report: BlocksReport) -> None:
        loop = asyncio.get_running_loop()
        self._directory.hear(report, loop.time())
        said = self._said.get(report.image)
        if not report.asks or report.node == self._node or said is None or report.image in self._answering:
            return
        # However many ask, one statement a second answers all of them.
        wait = max(random.uniform(0.0, LONGEST_ANSWER_S), said[1] + TICK_S - loop.time())
        self._answering.add(report.image)
        loop.call_later(wait, self._answer, report.image)

    def _answer(self, image: str) -> None:
        self._answering.discard(image)
        self._said.pop(image, None)
        self._wake.set()

    async def _rest(self) -> None:
        self._wake.clear()
        try:
            async with asyncio.timeout(TICK_S):
                await self._wake.wait()
        except TimeoutError:
            return
