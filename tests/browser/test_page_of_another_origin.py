"""A page that is not the gateway's own, such as a web editor: which answers Chromium lets it have."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from tests.browser.conftest import Newsroom

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASK = """async ([url, path, init]) => {
  try {
    const answer = await fetch(url + path, init);
    const id = answer.headers.get("x-request-id");
    return { status: answer.status, id, text: await answer.text() };
  } catch (error) {
    return { status: 0, text: String(error) };
  }
}"""
JSON = {"Content-Type": "application/json", "X-Request-Id": "mine", "X-Own": "1"}
SENTENCE = {"method": "POST", "headers": JSON, "body": '{"text": "She go home."}'}
CORRECT = ["/v1/correct", SENTENCE]
CHECK = ["/v2/check", {"method": "POST", "body": "language=en-US&text=She+go+home."}]


@pytest_asyncio.fixture(loop_scope="module")
async def editor(browser: Browser) -> AsyncIterator[Page]:
    """An empty page from a server of its own: another port is another origin."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n<!doctype html>")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        page = await (await browser.new_context()).new_page()
        await page.goto(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
        yield page
        await page.context.close()


def origin_of(page: Page) -> str:
    return page.url.rstrip("/")


async def asked(page: Page, url: str, request: list[Any]) -> dict[str, Any]:
    answer: dict[str, Any] = await page.evaluate(ASK, [url, *request])
    return answer


async def test_a_page_of_an_origin_that_is_listed_has_every_api(newsroom: Newsroom, editor: Page) -> None:
    await newsroom.open_fleet(cors_origins=origin_of(editor))
    corrected = await asked(editor, newsroom.url, CORRECT)
    assert (corrected["status"], corrected["id"]) == (200, "mine"), corrected
    assert "She goes home." in corrected["text"]
    assert '"goes"' in (await asked(editor, newsroom.url, CHECK))["text"]
    assert (await asked(editor, newsroom.url, ["/v1/models", {}]))["status"] == 200
    wrong = await asked(editor, newsroom.url, ["/v1/correct", SENTENCE | {"body": "{"}])
    assert (wrong["status"], "invalid_json" in wrong["text"]) == (400, True)


@pytest.mark.parametrize("listed", ["", "http://other.localhost:3000"])
async def test_a_page_of_another_origin_has_none(newsroom: Newsroom, editor: Page, listed: str) -> None:
    await newsroom.open_fleet(cors_origins=listed)
    for request in (CORRECT, CHECK, ["/v1/models", {}]):
        assert (await asked(editor, newsroom.url, request))["status"] == 0
