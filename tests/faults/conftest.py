"""Fleets that are to be broken, and the load under which that is looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from copydesk.loadtest import Plan, Sample
from copydesk.loadtest.client import Client, Target, correction_bodies
from copydesk.loadtest.generator import fly
from copydesk.loadtest.report import nearest_rank
from tests.fixtures.fleet import Fleet, running_fleet
from tests.fixtures.sentences import sentences
from tests.fixtures.tiny_model import write_tiny_model
from tests.integration.gateway.conftest import site

__all__ = ["site"]

RATE = 20.0


@pytest.fixture(scope="session")
def quick_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has nothing to correct, at once: only the fleet matters."""
    return write_tiny_model(tmp_path_factory.mktemp("models") / "quick", seed=1, always_stops=True)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, quick_model: Path) -> Iterator[Fleet]:
    """A fleet of two pods for all tests of a module, each of which leaves it whole."""
    with running_fleet(tmp_path_factory.mktemp("struck") / "fleet", "--model", str(quick_model)) as running:
        yield running


async def load(url: str, seconds: float, rate: float = RATE) -> list[Sample]:
    """Send `rate` sentences a second, whatever the fleet does; moments are on the event loop's clock."""
    client = Client(Target(url=url, bodies=correction_bodies(sentences())))
    offsets = Plan.constant(rate, seconds).offsets
    try:
        return await fly(offsets, client.send, range(len(offsets)))
    finally:
        client.close()


def failures(samples: Sequence[Sample]) -> list[str]:
    """What went wrong, of all of them."""
    return [str(sample.failure) for sample in samples if sample.failure is not None]


def p99(samples: Sequence[Sample]) -> float:
    """Seconds that all but one in a hundred took at the most."""
    assert len(samples) >= 100
    return nearest_rank(sorted(sample.latency for sample in samples), 0.99)


async def view(url: str) -> dict[str, Any]:
    """The fleet, as its gateway sees it."""
    async with httpx.AsyncClient(base_url=url, timeout=10, trust_env=False) as client:
        found: dict[str, Any] = (await client.get("/v1/fleet")).json()
        return found


async def until_whole(fleet: Fleet, seconds: float = 60.0) -> None:
    """Wait until both pods take requests again."""
    async with asyncio.timeout(seconds):
        while not whole(await view(fleet.url)):  # noqa: ASYNC110 - another process's state
            await asyncio.sleep(0.1)


def whole(found: dict[str, Any]) -> bool:
    """Whether two pods are connected, ready, and not ejected."""
    return [pod["state"] for pod in found["pods"]] == ["ready", "ready"]
