"""The wall clock is set forward and back by five minutes, for the processes under test only."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.faults.conftest import failures, load, view, whole
from tests.fixtures.fleet import running_fleet
from tests.fixtures.nats import NatsServer
from tests.integration.gateway.conftest import Site, eventually

pytestmark = pytest.mark.faults

STEP_S = 300
LIBRARIES = (
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
)


class Clock:
    """A wall clock that the processes with `environ` go by; their monotonic clock is the machine's."""

    def __init__(self, directory: Path) -> None:
        found = [path for path in LIBRARIES if Path(path).exists()]
        if not found:
            reason = "there is no libfaketime; on Debian: apt-get install libfaketime"
            if os.environ.get("COPYDESK_REQUIRE_ALL") == "1":
                pytest.fail(reason)
            pytest.skip(reason)
        self._file = directory / "clock"
        self.step(0)
        self.environ = {
            "LD_PRELOAD": found[0],
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_NO_CACHE": "1",
        }

    def step(self, seconds: int) -> None:
        """Set it to the right time and so many seconds."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{seconds:+d}\n")
        fresh.replace(self._file)


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    return Clock(tmp_path)


async def test_a_machine_whose_clock_is_set_changes_no_decision(
    tmp_path: Path, quick_model: Path, clock: Clock
) -> None:
    arguments = ("--model", str(quick_model), "--autoscale", "2:3")
    with running_fleet(tmp_path / "fleet", *arguments, environ=clock.environ) as fleet:
        await asyncio.to_thread(fleet.wait_for, "child_up", name="autoscaler", timeout=60)
        before = len(fleet.events)
        loading = asyncio.create_task(load(fleet.url, 18.0, rate=10.0))
        await asyncio.sleep(3.0)
        for seconds in (STEP_S, 0, -STEP_S):
            clock.step(seconds)
            await asyncio.sleep(4.0)
            assert whole(await view(fleet.url)), fleet.story()
        assert failures(await loading) == [], fleet.story()
        totals = (await view(fleet.url))["totals"]
        assert totals["ejections"] == 0
        assert [event["event"] for event in fleet.events[before:]] == [], fleet.story()


async def test_a_gateway_whose_clock_is_wrong_keeps_its_pods_and_follows_discovery(
    site: Site, nats_server: NatsServer, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    pods = [await site.pod(f"pod-{number}", "slow:16:0.02") for number in range(2)]
    discovery = await site.discovery(nats_server)
    discovery.announce(pods[0].endpoint())
    with monkeypatch.context() as patched:
        for name, value in clock.environ.items():
            patched.setenv(name, value)
        gateway = await site.gateway(nats_server.url)

    async def eligible(count: int) -> bool:
        return bool((await view(gateway.url))["totals"]["eligible"] == count)

    await eventually(lambda: eligible(1), within=60)
    loading = asyncio.create_task(load(gateway.url, 5.0))
    for number, seconds in enumerate((STEP_S, -STEP_S)):
        clock.step(seconds)
        await asyncio.sleep(1.0)
        members = pods if number == 0 else pods[1:]
        discovery.announce(*(pod.endpoint() for pod in members))
        await eventually(lambda members=members: eligible(len(members)))  # type: ignore[misc]
    assert failures(await loading) == []
    assert (await view(gateway.url))["totals"]["ejections"] == 0
