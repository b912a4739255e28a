"""Messages on the bus as an enemy would publish them, for every receiver that decides by them.

What is no message is logged and dropped; what is one and makes no sense must not raise in any receiver: a
`bus_callback_failed` is a bug. Nobody is connected to here, whatever address is named.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from nats.aio.msg import Msg

from copydesk.autoscaler.observer import Observer
from copydesk.common.bus import Bus, Subscription
from copydesk.common.messages import DemandReport, EndpointsSnapshot, LoadReport, RolloutPlan, ScaleDecision
from copydesk.eds.roster import Elapsed, Reported, Roster, reduce
from copydesk.gateway.service import Gateway
from copydesk.gateway.settings import GatewaySettings
from tests.fuzz.corpus import cases, effort
from tests.fuzz.hostile_bytes import damaged

MODEL = GatewaySettings().model
# Beyond it the fleet page's JavaScript would show another number.
MOST_IN_JSON = 1 << 53
TYPES: list[type[msgspec.Struct]] = [LoadReport, EndpointsSnapshot, DemandReport, ScaleDecision, RolloutPlan]

numbers = st.one_of(
    st.integers(-1, 3),
    st.sampled_from([1 << 31, 1 << 53, 1 << 62, (1 << 63) - 1, -(1 << 63), (1 << 64) - 1, 1 << 70]),
)
reals = numbers | st.floats(allow_nan=False, allow_infinity=False)
names = st.sampled_from([MODEL, "p1", "p2", "", "127.0.0.1", "a..b", "x" * 70, "[::1", "\0", "ready", "sha256:x"])


def values(type_: Any) -> st.SearchStrategy[Any]:
    """What could be said for a field: mostly of its type, and odd."""
    info = msgspec.inspect.type_info(type_)
    return _of(info)


def _of(info: msgspec.inspect.Type) -> st.SearchStrategy[Any]:
    inspect = msgspec.inspect
    if isinstance(info, inspect.StructType):
        known = {field.encode_name: _of(field.type) for field in info.fields}
        known |= {"model": st.just(MODEL)} if "model" in known else {}
        return st.fixed_dictionaries(known)
    if isinstance(info, inspect.VarTupleType):
        return st.lists(_of(info.item_type), max_size=3)
    if isinstance(info, inspect.EnumType):
        return st.sampled_from([member.value for member in info.cls])
    if isinstance(info, inspect.IntType):
        return st.integers(0, 3) if info.ge is not None else numbers
    if isinstance(info, inspect.FloatType):
        return st.floats(0.001, 1.0) if info.le is not None else reals
    if isinstance(info, inspect.BoolType):
        return st.booleans()
    if isinstance(info, inspect.StrType):
        return names
    return st.just({})


bodies = st.one_of(*(values(type_).map(msgspec.json.encode) for type_ in TYPES))


class Receivers:
    """Who hears what on the bus, without a bus."""

    def __init__(self) -> None:
        self.gateway = Gateway(GatewaySettings())
        self.observer = Observer(MODEL, 30.0)
        self.roster = reduce(Roster(timeout=3.0, settle=0.0), Elapsed(0.0, -1e9)).roster
        gateway, observer = self.gateway, self.observer
        hears: list[tuple[type[Any], Callable[[Any], object]]] = [
            (EndpointsSnapshot, gateway.fleet.apply),
            (LoadReport, gateway._hear_load),
            (ScaleDecision, gateway._hear),
            (RolloutPlan, gateway.rollout.hear),
            (LoadReport, self._reduce),
            (DemandReport, lambda report: observer.on_demand(report, 1.0)),
            (EndpointsSnapshot, lambda snapshot: observer.on_snapshot(snapshot, 1.0)),
            (LoadReport, lambda report: observer.on_load(report, 1.0)),
        ]
        bus = cast(Bus, None)
        self.all = [
            Subscription(bus, "a.subject", type_, cast(Callable[[Any], None], hear)) for type_, hear in hears
        ]

    def _reduce(self, report: LoadReport) -> None:
        self.roster = reduce(self.roster, Reported(report)).roster

    async def hear(self, body: bytes) -> None:
        for subscription in self.all:
            await subscription.on_message(Msg(cast(Any, None), subject="a.subject", data=body))


async def _refused(*_: Any, **__: Any) -> None:
    raise ConnectionRefusedError


async def check_messages(sent: list[bytes]) -> None:
    failures: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.create_connection = _refused  # type: ignore[method-assign,assignment]
    loop.set_exception_handler(lambda _, context: failures.append(context))
    receivers = Receivers()
    try:
        with structlog.testing.capture_logs() as logs:
            for body in sent:
                await receivers.hear(body)
            for _ in range(5):
                await asyncio.sleep(0)
            receivers.observer.observe(2, 2.0)
            receivers.observer.outcome(2.0)
            told = receivers.gateway.history.body(0).scale_decisions
            assert all(0 <= one.at_ms < MOST_IN_JSON > one.replicas >= 0 for one in told)
            reduce(receivers.roster, Elapsed(100.0, -1e9))
            assert receivers.gateway.fleet.capacity >= 0
            assert math.isfinite(receivers.gateway.fleet.membership_age(loop.time()))
    finally:
        await receivers.gateway.close()
    assert not failures
    assert not [log for log in logs if log["log_level"] in ("error", "critical")]


@effort(40)
@given(sent=st.lists(bodies | damaged(bodies, 2) | st.binary(max_size=20), max_size=6))
async def test_no_message_raises_in_a_receiver(sent: list[bytes]) -> None:
    await check_messages(sent)


@pytest.mark.parametrize("body", [pytest.param(data, id=name) for name, data in cases("bus_messages")])
async def test_a_kept_message_is_no_trouble(body: bytes) -> None:
    await check_messages([body, body])
