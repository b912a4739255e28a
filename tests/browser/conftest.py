"""A real Chromium on the pages of a gateway that is a process, with pods that correct by rules the test knows.

The tests of a module share a browser, and therefore an event loop; each has a gateway, pods and pages of its own.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, Request, async_playwright, expect

from copydesk.common.tasks import CorrectedSentence, Outcome
from tests.browser.browsers import NoBrowserError, executable, launched
from tests.fixtures.fake_pod import FakePod
from tests.fixtures.nats import NatsServer, free_port
from tests.integration.gateway.conftest import Discovery, GatewayProcess, Site

PATIENCE_MS = 15_000

RULES = {
    r"\bgo\b": "goes",
    r"\bhave\b": "has",
    r"\bvery very\b": "very",
    r"\bin park\b": "in the park",
    r"\bwether\b": "weather",
}
"""What the pods correct: three kinds of edits."""

expect.set_options(timeout=PATIENCE_MS)


def by_rules(text: str) -> CorrectedSentence:
    """Correct a sentence; tokens are words."""
    corrected = text
    for pattern, replacement in RULES.items():
        corrected = re.sub(pattern, replacement, corrected)
    return CorrectedSentence(corrected, Outcome.CORRECTED, len(text.split()), len(corrected.split()))


class Watch:
    """What a page did that none of ours may do: errors in its console, requests to another origin."""

    def __init__(self, page: Page, origin: str) -> None:
        self._origin = origin
        self.complaints: list[str] = []
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.complaints.append(f"uncaught: {error}"))
        page.on("request", self._on_request)

    def _on_console(self, message: ConsoleMessage) -> None:
        # Chromium itself reports each answer that is no success; that there are such is what some tests are about.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.complaints.append(f"{message.type}: {message.text}")

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith((self._origin + "/", "data:")):
            self.complaints.append(f"request to {request.url}")


class Newsroom:
    """One gateway and its pods, and pages on it; the gateway may die and come back at its address."""

    def __init__(self, site: Site, nats: NatsServer, discovery: Discovery, browser: Browser) -> None:
        self.site = site
        self.nats = nats
        self.discovery = discovery
        self.pod = FakePod("p1", answer=by_rules)
        self.gateway: GatewayProcess | None = None
        self._browser = browser
        self._port = free_port()
        self._contexts: list[BrowserContext] = []
        self._watches: list[Watch] = []

    @property
    def url(self) -> str:
        """Where the gateway is, or would be."""
        return f"http://127.0.0.1:{self._port}"

    async def open_fleet(self, **settings: object) -> None:
        """Start the pod, and the gateway with these settings."""
        await self.pod.start(self.pod.port)
        self.discovery.announce(self.pod.endpoint())
        await self.start_gateway(**settings)

    async def start_gateway(self, **settings: object) -> None:
        """Start the gateway, or a new one in the place of one that ended."""
        fixed = {"port": self._port, "endpoint_wait_ms": 200, "keepalive_ms": 50}
        self.gateway = await self.site.gateway(self.nats.url, **fixed | settings)

    async def page(self, path: str = "/", **context: Any) -> Page:
        """A page in a browser context of its own; `context` are Playwright's options, such as a device's."""
        permissions = ["clipboard-read", "clipboard-write"]
        opened = await self._browser.new_context(permissions=permissions, **context)
        self._contexts.append(opened)
        page = await opened.new_page()
        self._watches.append(Watch(page, self.url))
        await page.goto(self.url + path)
        return page

    async def close(self) -> None:
        """Close the pages, and fail if one did what no page may."""
        for context in self._contexts:
            await context.close()
        complaints = [complaint for watch in self._watches for complaint in watch.complaints]
        self._contexts.clear()
        self._watches.clear()
        assert complaints == []


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    """The machine's Chromium; without one the test is skipped, or fails where nothing may be skipped."""
    try:
        executable()
    except NoBrowserError as error:
        if os.environ.get("COPYDESK_REQUIRE_ALL") == "1":
            pytest.fail(str(error))
        pytest.skip(str(error))
    async with async_playwright() as playwright, launched(playwright) as browser:
        yield browser


@asynccontextmanager
async def founded(directory: Path, nats: NatsServer, browser: Browser) -> AsyncIterator[Newsroom]:
    """A newsroom whose fleet is not open yet."""
    async with AsyncExitStack() as stack:
        site = Site(stack, directory)
        room = Newsroom(site, nats, await site.discovery(nats), browser)
        stack.push_async_callback(room.pod.stop)
        yield room


@pytest_asyncio.fixture(loop_scope="module")
async def newsroom(tmp_path: Path, nats_server: NatsServer, browser: Browser) -> AsyncIterator[Newsroom]:
    """A newsroom of the test's own; at the end, its pages must have kept to the rules."""
    async with founded(tmp_path, nats_server, browser) as room:
        yield room
        await room.close()
