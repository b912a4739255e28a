"""Discovery that stands still while the fleet it tells of changes."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from tests.faults.conftest import failures, load, until_whole, view
from tests.fixtures.fleet import Fleet

pytestmark = pytest.mark.faults

FROZEN_S = 14.0
"""Longer than the ten seconds of silence after which a gateway believes a publisher with a lower epoch."""


async def test_while_discovery_stands_still_the_last_membership_serves_even_without_a_pod_of_it(
    fleet: Fleet,
) -> None:
    before = len(fleet.events)
    eds = fleet.pid("eds")
    os.kill(eds, signal.SIGSTOP)
    try:
        loading = asyncio.create_task(load(fleet.url, FROZEN_S))
        await asyncio.sleep(3.0)
        os.kill(fleet.pid("pod-2"), signal.SIGKILL)
        await asyncio.to_thread(fleet.wait_for, "child_exited", name="pod-2", timeout=15, after=before)
        samples = await loading
        assert {pod["id"] for pod in (await view(fleet.url))["pods"]} == {"pod-1", "pod-2"}
    finally:
        os.kill(eds, signal.SIGCONT)
    assert failures(samples) == [], fleet.story()
    await until_whole(fleet)
    assert failures(await load(fleet.url, 3.0)) == [], fleet.story()
