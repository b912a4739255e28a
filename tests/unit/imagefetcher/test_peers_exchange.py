"""What a node says to its peers, and how often, however often it is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from copydesk.common.messages import BlocksReport
from copydesk.imagefetcher.peers import exchange as exchange_module
from copydesk.imagefetcher.peers.directory import PeerDirectory
from copydesk.imagefetcher.peers.exchange import PeerExchange

IMAGE = "sha256:" + "ab" * 32
KNOWN: Any = SimpleNamespace(
    image=IMAGE, index=SimpleNamespace(data=SimpleNamespace(sectors=(SimpleNamespace(plain_digest="x"),)))
)


class StubBus:
    """Takes what is said, and lets a test speak."""

    connected_since = 1.0

    def __init__(self) -> None:
        self.said: list[BlocksReport] = []
        self.tell: Callable[[BlocksReport], None] = lambda _: None

    async def subscribe(self, _: str, __: object, callback: Callable[[BlocksReport], None]) -> None:
        self.tell = callback

    def publish(self, _: str, report: BlocksReport) -> None:
        self.said.append(report)


async def test_a_flood_of_questions_gets_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange_module, "TICK_S", 0.2)
    bus: Any = StubBus()
    exchange = PeerExchange(
        bus,
        PeerDirectory("me"),
        node="me",
        address=("10.0.0.1", 7070),
        images=lambda: [KNOWN],
        held=lambda _: True,
    )
    work = asyncio.create_task(exchange.run())
    try:
        await asyncio.sleep(0.01)
        assert [report.asks for report in bus.said] == [True]
        for number in range(1000):
            asks = BlocksReport(
                image=IMAGE,
                node=f"n{number}",
                host="10.0.0.2",
                port=7070,
                started_at=1.0,
                sequence=number,
                held=b"",
                asks=True,
            )
            bus.tell(asks)
        await asyncio.sleep(0.35)
        assert [report.asks for report in bus.said] == [True, False]
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
