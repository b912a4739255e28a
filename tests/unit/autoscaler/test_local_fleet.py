"""Who leads a local fleet, and whether its supervisor hears; time is the test's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from copydesk.autoscaler.actuator import ActuatorError
from copydesk.autoscaler.local import LARGEST_EPOCH, LocalActuator, LocalLeadership
from copydesk.common.messages import ReplicaStatus, ScaleDecision


class Wire:
    """A bus as far as these look at it."""

    def __init__(self) -> None:
        self.connected_since: float | None = 0.0

    @property
    def connected(self) -> bool:
        return self.connected_since is not None

    async def subscribe(self, subject: str, type_: object, callback: Callable[[object], None]) -> Wire:
        return self

    async def unsubscribe(self) -> None:
        return None


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def decision(epoch: int, model: str = "gec-en", policy: str = "live") -> ScaleDecision:
    return ScaleDecision(model=model, sent_at=0.0, replicas=3, reason="", epoch=epoch, policy=policy)


def status(replicas: int, epoch: int = 0, model: str = "gec-en") -> ReplicaStatus:
    return ReplicaStatus(
        model=model, sent_at=0.0, replicas=replicas, starting=(), running=(), draining=(), epoch=epoch
    )


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
async def leadership(wire: Wire, clock: Clock) -> LocalLeadership:
    found = LocalLeadership(wire, ["gec-en"], clock, wall=lambda: 5.0)  # type: ignore[arg-type]
    assert not found.is_leader(clock.now)
    await found.start()
    return found


async def test_who_is_alone_leads_under_its_start(leadership: LocalLeadership, clock: Clock) -> None:
    assert leadership.epoch == 5000
    for heard in (decision(5000), decision(4999), decision(9000, "other"), decision(9000, policy="candidate")):
        leadership.on_decision(heard)
    assert leadership.is_leader(clock.now)


async def test_who_hears_a_newer_one_stands_by_until_that_is_silent(
    leadership: LocalLeadership, clock: Clock, wire: Wire
) -> None:
    leadership.on_decision(decision(6000))
    assert not leadership.is_leader(clock.now)
    clock.now += 9.0
    leadership.on_decision(decision(6000))
    clock.now += 10.0
    assert not leadership.is_leader(clock.now)
    clock.now += 0.1
    assert leadership.is_leader(clock.now)
    assert leadership.epoch == 6001


async def test_a_silence_without_a_connection_is_none(
    leadership: LocalLeadership, clock: Clock, wire: Wire
) -> None:
    leadership.on_decision(decision(6000))
    wire.connected_since = None
    clock.now += 1000.0
    assert not leadership.is_leader(clock.now)
    wire.connected_since = clock.now - 3.0
    assert not leadership.is_leader(clock.now)
    clock.now += 8.0
    assert leadership.is_leader(clock.now)


async def test_an_epoch_that_no_start_can_be_moves_nobody(leadership: LocalLeadership, clock: Clock) -> None:
    for epoch in (LARGEST_EPOCH, 2**62, -1):
        leadership.on_decision(decision(epoch))
    assert leadership.is_leader(clock.now)


async def test_who_has_stood_down_leads_no_more(leadership: LocalLeadership, clock: Clock) -> None:
    await leadership.close()
    assert not leadership.is_leader(clock.now)


# The actuator.


@pytest.fixture
def fenced() -> list[int]:
    return []


@pytest.fixture
def actuator(wire: Wire, clock: Clock, fenced: list[int]) -> LocalActuator:
    return LocalActuator(wire, ["gec-en"], fenced.append, clock)  # type: ignore[arg-type]


async def test_the_size_is_what_the_supervisor_works_towards(actuator: LocalActuator) -> None:
    actuator.on_status(status(4))
    for absurd in (status(-1), status(2**62), status(9, model="other")):
        actuator.on_status(absurd)
    assert await actuator.size("gec-en") == 4


async def test_a_silent_supervisor_has_no_size(actuator: LocalActuator, clock: Clock) -> None:
    with pytest.raises(ActuatorError, match="no supervisor"):
        await actuator.size("gec-en")
    actuator.on_status(status(4))
    clock.now += 5.1
    with pytest.raises(ActuatorError, match="fallen silent"):
        await actuator.size("gec-en")


async def test_an_order_that_nobody_hears_is_an_error(actuator: LocalActuator, wire: Wire) -> None:
    actuator.on_status(status(4))
    assert await actuator.resize("gec-en", 6, 5000) == 6
    wire.connected_since = None
    with pytest.raises(ActuatorError, match="NATS is away"):
        await actuator.resize("gec-en", 6, 5000)


async def test_a_supervisor_that_heeds_a_newer_leader_ends_the_term(
    actuator: LocalActuator, fenced: list[int]
) -> None:
    actuator.on_status(status(4, epoch=6000))
    with pytest.raises(ActuatorError, match="newer leader") as caught:
        await actuator.resize("gec-en", 6, 5000)
    assert caught.value.fenced
    assert fenced == [6000]


async def test_an_epoch_that_no_leader_can_have_had_fences_nobody(
    actuator: LocalActuator, fenced: list[int]
) -> None:
    actuator.on_status(status(4))
    for epoch in (LARGEST_EPOCH, 2**62, -1):
        actuator.on_status(status(9, epoch=epoch))
    assert await actuator.resize("gec-en", 6, 5000) == 6
    assert (fenced, await actuator.size("gec-en")) == ([], 4)
