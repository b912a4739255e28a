"""How many tasks the event loops of a fleet hold, as its processes tell in their metrics."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping

import httpx

TIMEOUT_S = 2.0
_SAMPLE = re.compile(
    r'^copydesk_\w+_asyncio_tasks(?:\{process="(?P<process>[^"]+)"\})? (?P<count>\S+)$', re.MULTILINE
)


class TaskCounts:
    """Reads `pages`, the addresses of metrics by the name of the process that tells them.

    A pod tells of its supervisor, and, with a label, of its other processes, which are called `pod-1/worker-0`.
    """

    def __init__(self, pages: Mapping[str, str], headers: Mapping[str, str]) -> None:
        self._pages = pages
        self._client = httpx.AsyncClient(headers=dict(headers), timeout=TIMEOUT_S, trust_env=False)

    async def read(self) -> dict[str, int]:
        """Return the tasks of each process that tells; who is broken just now, does not."""
        found = await asyncio.gather(*(self._ask(name, page) for name, page in self._pages.items()))
        return {name: count for told in found for name, count in told.items()}

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _ask(self, name: str, page: str) -> dict[str, int]:
        try:
            response = await self._client.get(page)
        except httpx.HTTPError:
            return {}
        return parse_tasks(name, response.text) if response.is_success else {}


def parse_tasks(name: str, text: str) -> dict[str, int]:
    """Read the counts in the metrics that process `name` tells."""
    return {
        f"{name}/{sample['process']}" if sample["process"] else name: int(float(sample["count"]))
        for sample in _SAMPLE.finditer(text)
    }
