"""The page about the fleet in a real browser."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import re
import time
from pathlib import Path

import httpx
import pytest
from playwright.async_api import Route, expect

from copydesk.common.bus import Bus
from copydesk.common.messages import ScaleDecision, scale_subject
from tests.browser.conftest import Newsroom
from tests.fixtures.fake_pod import MODEL, FakePod

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def work(newsroom: Newsroom, requests: int) -> None:
    async with httpx.AsyncClient(base_url=newsroom.url) as client:
        for _ in range(requests):
            await client.post("/v1/correct", json={"text": "She go."})


async def test_it_shows_the_pods_the_rates_and_the_latencies_and_follows_them(newsroom: Newsroom) -> None:
    await newsroom.open_fleet()
    page = await newsroom.page("/fleet")
    await expect(page.locator("#now-pods")).to_have_text("1 of 1")
    await expect(page.locator("#now-model")).to_contain_text("gec-en")
    await expect(page.locator("#autoscaler")).to_have_text("No autoscaler has been heard.")
    row = page.locator("#pods tr")
    await expect(row).to_contain_text("ready")
    await work(newsroom, 20)
    await expect(row.locator("td").nth(8)).to_have_text("20")
    await expect(page.locator("#latencies output")).to_contain_text("ms P99")
    await expect(page.locator("#latencies .line.first")).to_have_attribute("d", re.compile(r"^M[\d.]+ [\d.]+h0"))
    await newsroom.pod.stop()
    await expect(row).to_contain_text("disconnected")
    await expect(page.locator("#now-pods")).to_have_text("0 of 1")


async def test_what_happened_before_it_was_opened_is_there_at_once(newsroom: Newsroom) -> None:
    await newsroom.open_fleet()
    await work(newsroom, 5)
    async with httpx.AsyncClient(base_url=newsroom.url) as client:
        async with asyncio.timeout(10):
            while sum((await client.get("/v1/fleet/history")).json()["requests_per_s"]) < 1:  # noqa: ASYNC110
                await asyncio.sleep(0.05)  # a second has to end first, in another process
    page = await newsroom.page("/fleet")
    await expect(page.locator("#rates .line.first")).to_have_count(1)
    chart = page.locator("#rates svg")
    await chart.focus()
    readings = set()
    for _ in range(8):
        readings.add(await page.locator("#rates output").inner_text())
        await page.keyboard.press("ArrowLeft")
    assert any(" 0 requests a second" not in reading for reading in readings), readings


async def silent_for_a_minute(route: Route) -> None:
    response = await route.fetch()
    history = await response.json()
    history["scale_heard_ms"] -= 60_000
    await route.fulfill(response=response, json=history)


async def test_scale_decisions_are_shown_when_an_autoscaler_is_heard(newsroom: Newsroom) -> None:
    await newsroom.open_fleet()
    page = await newsroom.page("/fleet")
    await expect(page.locator("#autoscaler")).to_have_text("No autoscaler has been heard.")
    await expect(page.locator("#now-pods")).to_have_text("1 of 1")  # so the gateway hears what is published
    bus = await Bus.connect(newsroom.nats.url, name="test")
    try:
        assert await bus.wait_connected(10)
        reason = "demand <b>grew</b>"
        grown, fell = f"add 2 to be 3: {reason}", "remove 2 to be 1: night fell"
        said = [(3, "up", grown), *[(3, "steady", "stay at 3: nothing to do")] * 3, (1, "down", fell)]
        yesterday = time.time() - 86_400
        for sequence, (replicas, rule, why) in enumerate(said, 1):
            bus.publish(
                scale_subject(MODEL),
                ScaleDecision(
                    model=MODEL,
                    sent_at=yesterday if replicas == 3 else time.time(),
                    replicas=replicas,
                    reason=why,
                    epoch=1,
                    sequence=sequence,
                    rule=rule,
                ),
            )
        going_on = asyncio.create_task(_keep_deciding(bus))
        lines = page.locator("#scaling li")
        today, before = re.compile(r"^[^,]*: 3 -> 1 pod: night fell$"), re.compile(r"\d, .*: 1 -> 3 pods: demand")
        await expect(lines).to_have_text([today, before])
        await expect(lines.last).to_contain_text(reason)
        await expect(page.locator("#autoscaler")).to_contain_text("It decides every two seconds.")
        await page.route("**/v1/fleet/history*", silent_for_a_minute)
        await expect(page.locator("#autoscaler")).to_contain_text("No autoscaler has been heard since")
        await page.unroute_all(behavior="ignoreErrors")
        going_on.cancel()
    finally:
        await bus.close()


async def _keep_deciding(bus: Bus) -> None:
    """Go on saying that one pod is enough, as an autoscaler does: one that falls silent is shown as that."""
    for sequence in itertools.count(6):
        await asyncio.sleep(1.0)
        decision = ScaleDecision(
            model=MODEL,
            sent_at=time.time(),
            replicas=1,
            reason="stay at 1: nothing to do",
            epoch=1,
            sequence=sequence,
            rule="steady",
        )
        bus.publish(scale_subject(MODEL), decision)


async def test_a_gateway_that_is_gone_is_said_and_its_successor_followed(newsroom: Newsroom) -> None:
    await newsroom.open_fleet()
    page = await newsroom.page("/fleet")
    await expect(page.locator("#now-pods")).to_have_text("1 of 1")
    assert newsroom.gateway is not None
    await newsroom.gateway.close()
    await expect(page.get_by_role("alert")).to_contain_text("cannot be reached. What is shown is of")
    await newsroom.start_gateway()
    await expect(page.locator("#trouble")).to_be_hidden()
    await expect(page.locator("#now-pods")).to_have_text("1 of 1")


async def test_it_fits_a_phone(newsroom: Newsroom) -> None:
    await newsroom.open_fleet()
    page = await newsroom.page("/fleet", viewport={"width": 360, "height": 640}, is_mobile=True)
    await expect(page.locator("#pods tr")).to_have_count(1)
    assert await page.evaluate("document.documentElement.scrollWidth") <= 360


async def test_an_ejected_pod_says_why_and_for_how_long(newsroom: Newsroom) -> None:
    await newsroom.open_fleet(eject_failures=1, eject_ms=60_000, retry_floor=1000, slow_start_ms=0)
    broken = await FakePod("p2", "crash").start()
    try:
        newsroom.discovery.announce(newsroom.pod.endpoint(), broken.endpoint())
        page = await newsroom.page("/fleet")
        await expect(page.locator("#now-pods")).to_have_text("2 of 2")
        row = page.locator("#pods tr").filter(has_text="p2")
        for _ in range(100):
            await work(newsroom, 5)
            if await row.filter(has_text="ejected").count():
                break
        await expect(row).to_contain_text(re.compile(r"ejected for failures, \d+ s more"))
        await expect(page.locator("#now-ejected")).to_contain_text("1, 1")
    finally:
        await broken.stop()


async def test_where_keys_are_on_it_asks_for_one(newsroom: Newsroom, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"web:{hashlib.sha256(b'k1').hexdigest()}\n")
    await newsroom.open_fleet(api_keys_file=keys)
    page = await newsroom.page("/fleet")
    await page.get_by_label("API key").fill("k1")
    await page.keyboard.press("Enter")
    await expect(page.locator("#now-pods")).to_have_text("1 of 1")
    await expect(page.locator("#trouble")).to_be_hidden()
