"""The writing page when the fleet cannot answer: it says so, keeps the text, and goes on by itself."""

from __future__ import annotations

import contextlib
import hashlib
import re
from pathlib import Path

import pytest
from playwright.async_api import TimeoutError, expect

from copydesk.common.tasks import Outcome
from tests.browser.conftest import Newsroom
from tests.fixtures.fake_pod import refused

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = "She go home."


async def test_a_fleet_without_pods_is_an_error_until_one_is_back(newsroom: Newsroom) -> None:
    await newsroom.open_fleet()
    page = await newsroom.page()
    await newsroom.pod.stop()
    await page.locator("#text").fill(TEXT)
    await expect(page.get_by_role("alert")).to_contain_text("No inference pod became ready")
    await expect(page.get_by_role("alert")).to_contain_text("tried again in")
    assert await page.locator("#text").input_value() == TEXT
    await newsroom.pod.start(newsroom.pod.port)
    await expect(page.locator("#layer .mark")).to_have_text(["go"])
    await expect(page.locator("#trouble")).to_be_hidden()


async def test_a_gateway_that_is_gone_is_an_error_until_it_is_back(newsroom: Newsroom) -> None:
    await newsroom.open_fleet()
    page = await newsroom.page()
    assert newsroom.gateway is not None
    await newsroom.gateway.close()
    await page.locator("#text").fill(TEXT)
    await expect(page.get_by_role("alert")).to_contain_text(
        "The server cannot be reached. Your text is still here."
    )
    await newsroom.start_gateway()
    with contextlib.suppress(TimeoutError):  # the page tries by itself too, and may be faster
        await page.get_by_role("button", name="Try now").click(timeout=2_000)
    await expect(page.locator("#layer .mark")).to_have_text(["go"])
    await expect(page.locator("#trouble")).to_be_hidden()


async def test_a_full_fleet_is_asked_again_when_it_said(newsroom: Newsroom) -> None:
    await newsroom.open_fleet()
    newsroom.pod.behaviour = "overload"
    page = await newsroom.page()
    await page.locator("#text").fill(TEXT)
    await expect(page.get_by_role("alert")).to_contain_text(re.compile(r"It is tried again in \d+ second"))
    newsroom.pod.behaviour = "correct"
    await expect(page.locator("#layer .mark")).to_have_text(["go"])


async def test_a_sentence_that_the_model_refuses_is_left_alone_with_the_reason(newsroom: Newsroom) -> None:
    await newsroom.open_fleet()
    newsroom.pod.behaviour = "invalid"
    page = await newsroom.page()
    await page.locator("#text").fill(TEXT)
    await expect(page.locator("#reasons")).to_contain_text("1 sentence left as written.")
    await expect(page.locator("#reasons")).to_contain_text("nothing to do")
    newsroom.pod.behaviour = "correct"
    await page.get_by_role("button", name="Try again").click()
    await expect(page.locator("#layer .mark")).to_have_text(["go"])
    await expect(page.locator("#left")).to_be_hidden()


async def test_where_keys_are_on_the_page_asks_for_one_and_keeps_it_in_its_tab(
    newsroom: Newsroom, tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"web:{hashlib.sha256(b'k1').hexdigest()}\n")
    await newsroom.open_fleet(api_keys_file=keys)
    page = await newsroom.page()
    await page.locator("#text").fill(TEXT)
    await page.get_by_label("API key").fill("wrong")
    await page.get_by_role("button", name="Use this key").click()
    await expect(page.get_by_role("alert")).to_contain_text("key")
    await page.get_by_label("API key").fill("k1")
    await page.keyboard.press("Enter")
    await expect(page.locator("#layer .mark")).to_have_text(["go"])
    await expect(page.locator("#access")).to_be_hidden()
    await page.get_by_role("link", name="Fleet").click()
    await expect(page.locator("#pods tr")).to_have_count(1)
    assert await page.evaluate("[localStorage.length, document.cookie, sessionStorage.length]") == [0, "", 1]


async def test_what_the_model_left_alone_is_said_without_a_button_that_would_not_help(newsroom: Newsroom) -> None:
    newsroom.pod.answer = refused(Outcome.TRUNCATED)
    await newsroom.open_fleet()
    page = await newsroom.page()
    await page.locator("#text").fill(TEXT)
    await expect(page.locator("#reasons")).to_have_text(
        "1 sentence left as written. The model did not come to an end."
    )
    await expect(page.locator("#retry")).to_be_hidden()
