"""A leader whose epoch has been surpassed: it stands down, and leads again only under a larger one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from copydesk.kube.elector import Candidacy, LeaseLeadership
from copydesk.kube.lease import LARGEST_EPOCH
from tests.fixtures.kube_memory import Call, MemoryApi, MemoryServer
from tests.fixtures.until import until

LEASE = "apis/coordination.k8s.io/v1/namespaces/prod/leases/lease"
WALL = 1_790_000_000.0


def leads(one: LeaseLeadership) -> bool:
    return one.is_leader(asyncio.get_running_loop().time())


def candidate(server: MemoryServer, name: str) -> LeaseLeadership:
    # So short that it looks every few milliseconds.
    return LeaseLeadership(MemoryApi(server, name), Candidacy("prod", "lease", name, 0.05), wall=lambda: WALL)


@pytest.fixture
async def leader() -> AsyncIterator[tuple[LeaseLeadership, MemoryServer]]:
    server = MemoryServer()
    one = candidate(server, "one")
    await one.start()
    await until(lambda: leads(one))
    yield one, server
    await one.close()


async def test_a_leader_that_still_has_the_lease_takes_it_anew_under_a_larger_epoch(
    leader: tuple[LeaseLeadership, MemoryServer],
) -> None:
    one, _ = leader
    assert one.epoch == int(WALL * 1000)
    one.surpass(one.epoch + 5_000)
    assert not leads(one)
    await until(lambda: leads(one))
    assert one.epoch == int(WALL * 1000) + 5_001


async def test_an_epoch_that_is_not_larger_changes_nothing(leader: tuple[LeaseLeadership, MemoryServer]) -> None:
    one, _ = leader
    one.surpass(one.epoch)
    one.surpass(LARGEST_EPOCH + 1)
    assert leads(one)


async def test_a_leader_that_has_lost_the_lease_waits_for_its_turn(
    leader: tuple[LeaseLeadership, MemoryServer],
) -> None:
    one, server = leader
    held: dict[str, Any] = server.objects[LEASE]
    spec = {**held["spec"], "holderIdentity": "two", "leaseDurationSeconds": 3600}
    server.put(LEASE, {**held, "spec": spec})
    one.surpass(one.epoch + 1)
    reads = len(server.calls)
    await until(lambda: len(server.calls) > reads + 5)
    assert not leads(one)
    assert server.objects[LEASE]["spec"]["holderIdentity"] == "two"


async def test_a_lease_whose_taking_was_under_way_at_the_close_is_given_back_all_the_same() -> None:
    server = MemoryServer()
    taken, answer = asyncio.Event(), asyncio.Event()

    async def hold_the_answer(call: Call) -> None:
        if call.method == "POST":
            taken.set()
            await answer.wait()

    candidacy = Candidacy("prod", "lease", "one", 60.0)
    one = LeaseLeadership(MemoryApi(server, after=hold_the_answer), candidacy, wall=lambda: WALL)
    await one.start()
    await taken.wait()
    assert server.objects[LEASE]["spec"]["holderIdentity"] == "one"
    closing = asyncio.create_task(one.close())
    await asyncio.sleep(0)
    answer.set()
    await closing
    assert not server.objects[LEASE]["spec"].get("holderIdentity")
    assert not leads(one)
