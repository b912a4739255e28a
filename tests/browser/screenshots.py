"""Make the pictures of the pages that the README shows, from a fleet that runs.

make run                                    # in another terminal
.venv/bin/python -m tests.browser.screenshots http://127.0.0.1:8080 docs/images
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
from playwright.async_api import Browser, Page, async_playwright, expect

from tests.browser.browsers import launched
from tests.fixtures.sentences import sentences

TEXT = (
    "She go to school every day, and I has not seen her since last week. We was very happy when he told us about "
    "informations that you send. The weather is nice today. I am looking forward to see you in park on Sunday."
)
WIDE = {"width": 1100, "height": 640}
TALL = {"width": 1100, "height": 760}
PHONE = {"width": 390, "height": 780}
LOAD_SECONDS = 45
AT_ONCE = 6


async def main(url: str, folder: Path) -> None:
    """Write the pictures into `folder`."""
    async with async_playwright() as playwright, launched(playwright) as browser:
        await _writing(await _page(browser, url, viewport=WIDE), folder / "page.png")
        await _writing(await _page(browser, url, viewport=WIDE, color_scheme="dark"), folder / "page-dark.png")
        await _writing(await _page(browser, url, viewport=PHONE, is_mobile=True), folder / "page-phone.png")
        await _fleet(await _page(browser, url + "/fleet", viewport=TALL), url, folder / "fleet.png")


async def _page(browser: Browser, url: str, **context: object) -> Page:
    page = await (await browser.new_context(**context)).new_page()  # type: ignore[arg-type]
    await page.goto(url)
    return page


async def _writing(page: Page, picture: Path) -> None:
    await page.locator("#text").fill(TEXT)
    await expect(page.locator("#status")).to_contain_text("suggestion", timeout=60_000)
    await page.locator("#text").press("Control+Home")
    await page.keyboard.press("F8")
    await page.screenshot(path=picture)


async def _fleet(page: Page, url: str, picture: Path) -> None:
    """Show a fleet at work: its work has pauses, so that there is something to see."""
    texts = itertools.cycle(sentences(500))
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        ends = asyncio.get_running_loop().time() + LOAD_SECONDS
        await asyncio.gather(*(_work(client, texts, ends, worker) for worker in range(AT_ONCE)))
    await page.locator("#span").select_option("60")
    await page.screenshot(path=picture)


async def _work(client: httpx.AsyncClient, texts: Iterator[str], ends: float, worker: int) -> None:
    loop = asyncio.get_running_loop()
    while loop.time() < ends:
        (await client.post("/v1/correct", json={"text": next(texts)})).raise_for_status()
        await asyncio.sleep(0.05 * worker)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1].rstrip("/"), Path(sys.argv[2])))
