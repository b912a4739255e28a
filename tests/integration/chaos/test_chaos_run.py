"""A run against a server that answers as a gateway does, rightly, wrongly, or not at all."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx
import pytest

from copydesk.chaos.campaign import NotWellError, Orders, Run
from copydesk.chaos.report import ChaosReport
from copydesk.chaos.strikes import Arena

TEXTS = tuple(f"Sentence {number} go home." for number in range(6))
POD = {"id": "pod-1", "state": "ready", "connected": True, "eligible": True}


class Gateway:
    """Answers corrections by `tell`, which gets the number of the request, and tells of its pods."""

    def __init__(self) -> None:
        self.pods = [POD]
        self.in_flight = 0
        self.asked = 0
        self.at_once = 0
        self.tell: Callable[[int, str], tuple[int, str]] = lambda number, text: (200, text.replace("go", "goes"))
        self._now = 0
        self._tasks: list[asyncio.Task[None]] = []

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.append(asyncio.create_task(self._serve(reader, writer)))

    async def closed(self) -> None:
        await asyncio.gather(*self._tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                status, body = await self._answer(head, reader)
                content = json.dumps(body).encode()
                writer.write(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%s" % (status, len(content), content))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, head: bytes, reader: asyncio.StreamReader) -> tuple[int, object]:
        if head.startswith(b"GET"):
            return 200, {"model": "tiny", "pods": self.pods, "totals": {"in_flight": self.in_flight, "queued": 0}}
        text = json.loads(await reader.readexactly(int(re.findall(rb"ength: (\d+)", head)[0])))["text"]
        self._now += 1
        self.at_once = max(self.at_once, self._now)
        await asyncio.sleep(0.01)
        self._now -= 1
        self.asked += 1
        status, corrected = self.tell(self.asked, text)
        named = re.findall(rb"X-Request-Id: (\S+)", head)
        return status, {"id": named[0].decode() if named else "", "corrected": corrected}


@asynccontextmanager
async def gateway() -> AsyncIterator[tuple[Gateway, str]]:
    made = Gateway()
    server = await asyncio.start_server(made.accept, "127.0.0.1", 0)
    async with server:
        yield made, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    await made.closed()


def orders(url: str, *, seconds: float = 1.0, arena: Arena | None = None, alike: bool = True) -> Orders:
    return Orders(
        url=url,
        texts=TEXTS,
        rate=40.0,
        seconds=seconds,
        deadline_ms=2000.0,
        slo_ms=500.0,
        seed=1,
        headers={},
        alike=alike,
        arena=arena,
    )


def missed(report: ChaosReport) -> list[str]:
    return [check.name for check in report.checks if not check.holds]


BEFORE = 2 * len(TEXTS)
"""Requests before the load: each text alone, and in company."""


async def test_a_fleet_that_answers_rightly_holds_every_bar() -> None:
    async with gateway() as (made, url):
        report = await Run(orders(url), lambda line: None).report()
        assert missed(report) == []
        assert report.outcome.good == report.outcome.offered == made.asked - BEFORE > 10
        assert made.at_once == len(TEXTS)
        assert report.model == "tiny"


async def test_an_answer_other_than_before_is_a_wrong_one() -> None:
    async with gateway() as (made, url):
        made.tell = lambda number, text: (200, text.replace("go", "went" if number == BEFORE + 3 else "goes"))
        report = await Run(orders(url), lambda line: None).report()
    assert report.outcome.wrong == 1
    assert missed(report) == ["availability", "exactly once"]


async def test_where_answers_depend_on_company_another_one_is_no_wrong_one_and_that_is_said() -> None:
    lines: list[str] = []
    async with gateway() as (made, url):
        made.tell = lambda number, text: (200, f"{text} {number}")
        report = await Run(orders(url), lines.append).report()
    assert missed(report) == []
    assert any("depend on company" in line for line in lines)


async def test_refusals_cost_availability_and_nothing_else() -> None:
    async with gateway() as (made, url):
        made.tell = lambda number, text: (503 if number == BEFORE + 2 else 200, text)
        report = await Run(orders(url), lambda line: None).report()
    assert report.outcome.refused == 1
    assert missed(report) == ["availability"]


async def test_a_fleet_that_does_not_answer_is_not_broken_any_further() -> None:
    async with gateway() as (made, url):
        made.tell = lambda number, text: (503, "")
        with pytest.raises(NotWellError, match="Sentence"):
            await Run(orders(url), lambda line: None).report()


async def test_where_nobody_is_there_is_nothing_to_do() -> None:
    with pytest.raises(httpx.HTTPError):
        await Run(orders("http://127.0.0.1:9"), lambda line: None).report()


async def test_an_interrupted_run_reports_what_was() -> None:
    async with gateway() as (_, url):
        run = Run(orders(url, seconds=600.0, alike=False), lambda line: None)
        reporting = asyncio.create_task(run.report())
        await asyncio.sleep(2.0)
        run.interrupt()
        report = await asyncio.wait_for(reporting, 30)
    assert report.interrupted
    assert report.seconds < 30.0
    assert report.outcome.good == report.outcome.offered


async def test_what_stays_in_flight_or_away_after_the_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("copydesk.chaos.campaign.SETTLE_S", 0.5)
    async with gateway() as (made, url):
        arena = Arena(dict, ("nats",), resized=lambda: ("2 -> 3 pods",))

        def tell(number: int, text: str) -> tuple[int, str]:
            made.pods, made.in_flight = [POD | {"connected": False}], 2
            return 200, text

        made.tell = tell
        report = await Run(orders(url, arena=arena), lambda line: None).report()
    assert missed(report) == ["all back", "nothing left in flight", "size kept"]
    assert {check.name: check.said for check in report.checks}["all back"] == "not in service: nats, pod-1"
