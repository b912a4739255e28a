"""Who is in the fleet, and who of them gets work."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from copydesk.common.messages import Endpoint, EndpointState
from copydesk.common.rpc import PROTOCOL_VERSION, Hello
from tests.fixtures.fake_pod import MODEL
from tests.unit.gateway.conftest import Desk, eventually, snapshot


async def test_a_listed_pod_becomes_eligible_once_it_is_connected(desk: Desk) -> None:
    pod = await desk.pod("a")
    gateway = await desk.gateway()
    gateway.fleet.apply(snapshot(pod.endpoint()))
    assert gateway.fleet.eligible == []
    await eventually(lambda: gateway.fleet.eligible)
    assert gateway.fleet.digest == "sha256:fake"
    assert gateway.missing() is None


async def test_only_pods_that_discovery_calls_ready_are_eligible(desk: Desk) -> None:
    pods = [await desk.pod(name) for name in ("a", "b", "c")]
    gateway = await desk.gateway()
    states = (EndpointState.READY, EndpointState.WARMING, EndpointState.DRAINING)
    gateway.fleet.apply(snapshot(*(pod.endpoint(state) for pod, state in zip(pods, states, strict=True))))
    await eventually(lambda: all(pod.connected for pod in gateway.fleet.pods.values()))
    assert [pod.id for pod in gateway.fleet.eligible] == ["a"]
    gateway.fleet.apply(snapshot(pods[1].endpoint()))
    await eventually(lambda: [pod.id for pod in gateway.fleet.eligible] == ["b"])


async def test_a_pod_that_says_it_is_warming_waits_for_its_own_word(desk: Desk) -> None:
    pod = await desk.pod("a")
    pod.state = EndpointState.WARMING
    gateway = await desk.gateway()
    gateway.fleet.apply(snapshot(pod.endpoint()))
    await eventually(lambda: gateway.fleet.pods["a"].connected)
    assert gateway.fleet.eligible == []
    assert gateway.missing() == "no pod is ready"
    pod.state = EndpointState.READY
    await eventually(lambda: gateway.fleet.eligible)


async def test_a_lost_connection_ends_eligibility_and_is_made_again(desk: Desk) -> None:
    pod = await desk.pod("a")
    gateway = await desk.gateway(pod)
    await pod.stop()
    await eventually(lambda: not gateway.fleet.eligible)
    await desk.pod("a", port=pod.port)
    await eventually(lambda: gateway.fleet.eligible)


async def test_word_that_a_pod_is_ready_cuts_the_wait_before_the_next_attempt(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("copydesk.gateway.pod.backoff_seconds", lambda attempt, **_: 3600.0)
    pod = await desk.pod("a")
    gateway = await desk.gateway()
    gateway.fleet.apply(snapshot(pod.endpoint(EndpointState.WARMING)))
    await eventually(lambda: gateway.fleet.pods["a"].connected)
    await pod.stop()
    await eventually(lambda: not gateway.fleet.pods["a"].connected)
    await desk.pod("a", port=pod.port)
    await asyncio.sleep(0.02)
    assert not gateway.fleet.pods["a"].connected
    gateway.fleet.apply(snapshot(pod.endpoint()))
    await eventually(lambda: gateway.fleet.eligible)


async def test_a_draining_pod_is_left_out_at_once(desk: Desk) -> None:
    pod, other = await desk.pod("a"), await desk.pod("b")
    gateway = await desk.gateway(pod, other)
    await pod.drain()
    await eventually(lambda: [pod.id for pod in gateway.fleet.eligible] == ["b"])


async def test_an_older_snapshot_changes_nothing(desk: Desk) -> None:
    pod, other = await desk.pod("a"), await desk.pod("b")
    gateway = await desk.gateway()
    gateway.fleet.apply(snapshot(pod.endpoint(), epoch=5, generation=7))
    gateway.fleet.apply(snapshot(other.endpoint(), epoch=5, generation=6))
    gateway.fleet.apply(snapshot(other.endpoint(), epoch=4, generation=9))
    assert list(gateway.fleet.pods) == ["a"]
    gateway.fleet.apply(snapshot(other.endpoint(), epoch=6, generation=0))
    assert list(gateway.fleet.pods) == ["b"]


async def test_an_empty_snapshot_does_not_empty_the_fleet(desk: Desk) -> None:
    pod = await desk.pod("a")
    gateway = await desk.gateway(pod)
    gateway.fleet.apply(snapshot())
    assert [pod.id for pod in gateway.fleet.eligible] == ["a"]


async def test_a_pod_of_another_model_gets_nothing(desk: Desk) -> None:
    right, wrong = await desk.pod("a"), await desk.pod("b")
    wrong.model = "another"
    gateway = await desk.gateway()
    gateway.fleet.apply(snapshot(right.endpoint(), wrong.endpoint()))
    await eventually(lambda: gateway.fleet.eligible)
    await asyncio.sleep(0.05)
    assert [pod.id for pod in gateway.fleet.eligible] == ["a"]
    assert not gateway.fleet.pods["b"].connected


async def test_a_pod_that_moved_is_followed_to_its_new_port(desk: Desk) -> None:
    old, new = await desk.pod("a"), await desk.pod("a")
    gateway = await desk.gateway(old)
    gateway.fleet.apply(snapshot(new.endpoint()))
    assert gateway.fleet.eligible == []
    await eventually(lambda: gateway.fleet.eligible)
    assert gateway.fleet.pods["a"].endpoint.port == new.port


async def greet_and_fall_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    hello = msgspec.msgpack.encode(Hello(PROTOCOL_VERSION, "mute", "", MODEL))
    writer.write(len(hello).to_bytes(4, "big") + hello)
    await reader.read()
    writer.close()


async def test_a_silent_pod_is_noticed_by_its_pings(desk: Desk) -> None:
    server = await asyncio.start_server(greet_and_fall_silent, "127.0.0.1", 0)
    endpoint = Endpoint(
        id="a", host="127.0.0.1", port=server.sockets[0].getsockname()[1], state=EndpointState.READY
    )
    gateway = await desk.gateway(keepalive_ms=20, keepalive_timeout_ms=50)
    gateway.fleet.apply(snapshot(endpoint))
    await eventually(lambda: gateway.fleet.eligible)
    await eventually(lambda: not gateway.fleet.eligible)
    server.close()
    await gateway.close()
    await asyncio.sleep(0.01)


async def test_pings_keep_the_load_of_an_idle_pod_fresh(desk: Desk) -> None:
    gateway = await desk.gateway(await desk.pod("a"), keepalive_ms=20)
    ledger = gateway.fleet.pods["a"].ledger
    await eventually(lambda: ledger.load is not None)
    first = ledger.load
    await eventually(lambda: ledger.load is not first)


async def test_the_view_shows_each_pod_and_the_sums(desk: Desk) -> None:
    gateway = await desk.gateway(await desk.pod("b"), await desk.pod("a"))
    view = gateway.fleet_view()
    assert [(pod.id, pod.state, pod.connected, pod.eligible) for pod in view.pods] == [
        ("a", "ready", True, True),
        ("b", "ready", True, True),
    ]
    assert (view.totals.pods, view.totals.eligible, view.totals.capacity) == (2, 2, 32)
    assert not view.discovery_connected
