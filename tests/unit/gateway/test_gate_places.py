"""Others may carry requests as well, and count them where the gateway does."""

from __future__ import annotations

import pytest

from copydesk.gateway.balancing import Balancing
from copydesk.gateway.dispatch import Dispatcher
from copydesk.gateway.fleet import Fleet
from copydesk.gateway.gate import Places
from copydesk.gateway.metrics import Metrics
from copydesk.gateway.pod import Dialling
from copydesk.routing import Ledger, RetryBudget
from tests.fixtures.fake_pod import MODEL
from tests.unit.gateway.conftest import snapshot
from tests.unit.gateway.virtual_fleet import PAYLOAD, VirtualFleet
from tests.unit.loadtest.virtual_time import run_virtually


async def share(monkeypatch: pytest.MonkeyPatch) -> None:
    pods = VirtualFleet(monkeypatch)
    pod = pods.pod("only", capacity=1, seconds=None)
    gateway = await pods.gateway(overcommit=1.0)
    places = Places()
    dispatcher = Dispatcher(gateway.fleet, RetryBudget(), Metrics(), endpoint_wait=1.0, places=places)
    places.underway += 1
    outcomes: list[object] = []
    dispatcher.submit(PAYLOAD, 5.0, outcomes.append)
    assert (places.underway, places.waiting, dispatcher.gate.underway) == (1, 1, 1)
    assert pod.taken == []
    places.underway -= 1
    places.ended += 1
    dispatcher.gate.let_in()
    assert (places.underway, places.waiting, len(pod.taken)) == (1, 0, 1)
    pod.taken[0].end()
    assert (places.underway, places.ended, len(outcomes)) == (0, 2, 1)
    await gateway.close()


def test_a_request_waits_for_a_place_that_somebody_else_has_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    run_virtually(share(monkeypatch))


async def account(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Ledger] = []

    def new_ledger() -> Ledger:
        made.append(Ledger())
        return made[-1]

    pods = VirtualFleet(monkeypatch)
    for name in ("first", "second"):
        pods.pod(name)
    fleet = Fleet(Dialling("gateway", MODEL, "", lambda: 0.5), Balancing(aperture=1), new_ledger=new_ledger)
    fleet.apply(snapshot(*(pod.endpoint() for pod in pods.pods.values())))
    assert [pod.ledger for pod in fleet.pods.values()] == made
    await fleet.close()


def test_the_account_of_a_pod_may_be_kept_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    run_virtually(account(monkeypatch))
