"""The Chromium of this machine."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from playwright.async_api import Browser, Playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")


class NoBrowserError(Exception):
    """There is none."""


def executable() -> str:
    """Return where it is; raise `NoBrowserError`."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        raise NoBrowserError("no Chromium: apt-get install chromium")
    return found


@asynccontextmanager
async def launched(playwright: Playwright) -> AsyncIterator[Browser]:
    """Run it without a window. Its sandbox does not start as root, and it opens none but our own pages."""
    browser = await playwright.chromium.launch(executable_path=executable(), args=["--no-sandbox"])
    try:
        yield browser
    finally:
        await browser.close()
