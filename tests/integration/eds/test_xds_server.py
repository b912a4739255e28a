"""The xDS server, asked by a plain gRPC client in both variants of the protocol and in both services."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
import pytest
from prometheus_client import CollectorRegistry

from copydesk.common.messages import Endpoint, EndpointsSnapshot, EndpointState
from copydesk.eds.xds import connections as connections_module
from copydesk.eds.xds import server as server_module
from copydesk.eds.xds.discovery_pb2 import (
    ClusterLoadAssignment,
    DeltaDiscoveryRequest,
    DeltaDiscoveryResponse,
    DiscoveryRequest,
    DiscoveryResponse,
)
from copydesk.eds.xds.metrics import XdsMetrics
from copydesk.eds.xds.server import LONGEST_REQUEST, XdsServer
from copydesk.eds.xds.stream import MAX_NAMES
from copydesk.eds.xds.terms import Terms, Tls, XdsSettingError
from copydesk.eds.xds.types import AGGREGATED_SERVICE, ENDPOINT_SERVICE, ENDPOINTS
from tests.fixtures.certificates import self_signed
from tests.fixtures.until import until

CLUSTER = "type.googleapis.com/envoy.config.cluster.v3.Cluster"


def snapshot(model: str, *pods: str, port: int = 9000) -> EndpointsSnapshot:
    endpoints = tuple(
        Endpoint(id=pod, host=f"10.0.0.{number}", port=port, state=EndpointState.READY)
        for number, pod in enumerate(pods, 1)
    )
    return EndpointsSnapshot(model=model, epoch=1, generation=1, sent_at=0.0, endpoints=endpoints)


def pods_of(assignment: ClusterLoadAssignment) -> set[str]:
    return {
        str(endpoint.metadata.filter_metadata["envoy.lb"]["pod"])
        for zone in assignment.endpoints
        for endpoint in zone.lb_endpoints
    }


@dataclass
class Served:
    server: XdsServer
    registry: CollectorRegistry

    def count(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(f"copydesk_eds_xds_{name}", labels) or 0.0


Serve = Callable[[Terms], Awaitable[Served]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    servers: list[XdsServer] = []

    async def start(terms: Terms) -> Served:
        registry = CollectorRegistry()
        server = XdsServer("127.0.0.1", 0, terms, XdsMetrics(registry))
        servers.append(server)
        await server.start()
        return Served(server, registry)

    yield start
    for server in servers:
        await server.close()


@pytest.fixture
async def served(serve: Serve) -> Served:
    return await serve(Terms(slow_start=0.0))


class Sotw:
    """A subscriber by state of the world; it answers only when told to."""

    def __init__(
        self, channel: grpc.aio.Channel, *, aggregated: bool = True, metadata: Mapping[str, str] | None = None
    ) -> None:
        method = (
            f"/{AGGREGATED_SERVICE}/StreamAggregatedResources"
            if aggregated
            else f"/{ENDPOINT_SERVICE}/StreamEndpoints"
        )
        self.call: Any = channel.stream_stream(
            method,
            request_serializer=DiscoveryRequest.SerializeToString,
            response_deserializer=DiscoveryResponse.FromString,
        )(metadata=tuple((metadata or {}).items()))
        self.type_url = ENDPOINTS if aggregated else ""
        self.names: tuple[str, ...] = ()
        self.last = DiscoveryResponse()

    async def ask(self, *names: str) -> None:
        self.names = names
        await self.answer()

    async def answer(self, *, problem: str = "") -> None:
        request = DiscoveryRequest(
            type_url=self.type_url,
            resource_names=self.names,
            version_info=self.last.version_info,
            response_nonce=self.last.nonce,
        )
        if problem:
            request.error_detail.message = problem
        await self.call.write(request)

    async def hear(self) -> dict[str, set[str]]:
        """Return the pods of each cluster in the next response."""
        self.last = await self.call.read()
        found = [ClusterLoadAssignment.FromString(resource.value) for resource in self.last.resources]
        return {assignment.cluster_name: pods_of(assignment) for assignment in found}


class Delta:
    """An incremental subscriber; it answers only when told to."""

    def __init__(self, channel: grpc.aio.Channel, *, aggregated: bool = True) -> None:
        method = (
            f"/{AGGREGATED_SERVICE}/DeltaAggregatedResources"
            if aggregated
            else f"/{ENDPOINT_SERVICE}/DeltaEndpoints"
        )
        self.call: Any = channel.stream_stream(
            method,
            request_serializer=DeltaDiscoveryRequest.SerializeToString,
            response_deserializer=DeltaDiscoveryResponse.FromString,
        )()
        self.type_url = ENDPOINTS if aggregated else ""
        self.nonce = ""
        self.versions: dict[str, str] = {}

    async def ask(self, *names: str, drop: tuple[str, ...] = (), has: dict[str, str] | None = None) -> None:
        await self.call.write(
            DeltaDiscoveryRequest(
                type_url=self.type_url,
                resource_names_subscribe=names,
                resource_names_unsubscribe=drop,
                initial_resource_versions=has,
            )
        )

    async def answer(self, *, problem: str = "") -> None:
        request = DeltaDiscoveryRequest(type_url=self.type_url, response_nonce=self.nonce)
        if problem:
            request.error_detail.message = problem
        await self.call.write(request)

    async def hear(self) -> dict[str, set[str]]:
        """Return the pods of each cluster in the next response, and remember the versions."""
        response = await self.call.read()
        self.nonce = response.nonce
        self.versions |= {resource.name: resource.version for resource in response.resources}
        assert not response.removed_resources
        found = [ClusterLoadAssignment.FromString(resource.resource.value) for resource in response.resources]
        assert [assignment.cluster_name for assignment in found] == [
            resource.name for resource in response.resources
        ]
        return {assignment.cluster_name: pods_of(assignment) for assignment in found}


Subscriber = Sotw | Delta
Subscribe = Callable[..., Any]


@pytest.fixture
async def channel(served: Served) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{served.server.port}") as channel:
        yield channel


@pytest.fixture(params=[Sotw, Delta])
def subscribe(request: pytest.FixtureRequest, channel: grpc.aio.Channel) -> Subscribe:
    def open_stream(**arguments: Any) -> Subscriber:
        found: Subscriber = request.param(channel, **arguments)
        return found

    return open_stream


@pytest.mark.parametrize("aggregated", [True, False], ids=["aggregated", "endpoints"])
async def test_a_subscriber_gets_what_it_names_and_each_change_of_it(
    served: Served, subscribe: Subscribe, aggregated: bool
) -> None:
    served.server.on_snapshot(snapshot("a", "a-1"))
    served.server.on_snapshot(snapshot("b", "b-1"))
    stream = subscribe(aggregated=aggregated)
    await stream.ask("a")
    assert await stream.hear() == {"a": {"a-1"}}
    await stream.answer()
    served.server.on_snapshot(snapshot("b", "b-1", "b-2"))
    served.server.on_snapshot(snapshot("a", "a-1", "a-2"))
    assert await stream.hear() == {"a": {"a-1", "a-2"}}


async def test_a_model_that_comes_later_is_sent_when_it_comes(served: Served, subscribe: Subscribe) -> None:
    stream = subscribe()
    await stream.ask("a", "b")
    served.server.on_snapshot(snapshot("b", "b-1"))
    assert await stream.hear() == {"b": {"b-1"}}
    await stream.answer()
    served.server.on_snapshot(snapshot("a", "a-1"))
    assert await stream.hear() == {"a": {"a-1"}}


async def test_a_model_without_pods_is_an_assignment_without_endpoints(
    served: Served, subscribe: Subscribe
) -> None:
    served.server.on_snapshot(snapshot("a", "a-1"))
    stream = subscribe()
    await stream.ask("a")
    assert await stream.hear() == {"a": {"a-1"}}
    await stream.answer()
    served.server.on_snapshot(snapshot("a"))
    assert await stream.hear() == {"a": set()}


@pytest.mark.parametrize("names", [(), ("*",)])
async def test_a_star_or_no_name_at_all_subscribes_to_every_model(
    served: Served, subscribe: Subscribe, names: tuple[str, ...]
) -> None:
    for model in ("a", "b"):
        served.server.on_snapshot(snapshot(model, "x"))
    stream = subscribe()
    await stream.ask(*names)
    assert await stream.hear() == {"a": {"x"}, "b": {"x"}}
    await stream.answer()
    served.server.on_snapshot(snapshot("c", "y"))
    assert await stream.hear() == {"c": {"y"}}


async def test_a_slow_subscriber_gets_the_newest_state_and_no_backlog(
    served: Served, subscribe: Subscribe
) -> None:
    served.server.on_snapshot(snapshot("a", "old"))
    stream = subscribe()
    await stream.ask("a")
    await until(lambda: pushes(served) == 1)
    for number in range(20):
        served.server.on_snapshot(snapshot("a", f"pod-{number}"))
    assert await stream.hear() == {"a": {"old"}}
    await stream.answer()
    assert await stream.hear() == {"a": {"pod-19"}}
    assert pushes(served) == 2


async def test_a_snapshot_that_says_nothing_new_is_not_sent(served: Served, subscribe: Subscribe) -> None:
    stream = subscribe()
    await stream.ask("a")
    served.server.on_snapshot(snapshot("a", "one"))
    assert await stream.hear() == {"a": {"one"}}
    await stream.answer()
    for pod in ("one", "one", "two"):
        served.server.on_snapshot(snapshot("a", pod))
    assert await stream.hear() == {"a": {"two"}}
    assert pushes(served) == 2


async def test_a_refused_response_is_counted_and_not_sent_again_until_it_changes(
    served: Served, subscribe: Subscribe
) -> None:
    served.server.on_snapshot(snapshot("a", "bad"))
    stream = subscribe()
    await stream.ask("a")
    assert await stream.hear() == {"a": {"bad"}}
    await stream.answer(problem="I do not like it")
    await until(lambda: nacks(served) == 1)
    served.server.on_snapshot(snapshot("a", "bad"))
    served.server.on_snapshot(snapshot("a", "good"))
    assert await stream.hear() == {"a": {"good"}}
    assert pushes(served) == 2


async def test_one_bad_resource_does_not_keep_the_others_from_a_subscriber(
    served: Served, subscribe: Subscribe
) -> None:
    for model in ("a", "b", "c"):
        served.server.on_snapshot(snapshot(model, "x"))
    stream = subscribe()
    await stream.ask("a", "b", "c")
    heard = [await stream.hear()]
    await stream.answer(problem="b is bad")
    for problem in ("", "b is bad", ""):
        heard.append(await stream.hear())
        await stream.answer(problem=problem)
    assert [set(response) for response in heard] == [{"a", "b", "c"}, {"a"}, {"b"}, {"c"}]


async def test_versions_name_the_content_so_that_replicas_agree(serve: Serve) -> None:
    versions = []
    for history in (["now"], ["earlier", "now"]):
        served = await serve(Terms(slow_start=0.0))
        async with grpc.aio.insecure_channel(f"127.0.0.1:{served.server.port}") as channel:
            stream = Sotw(channel)
            await stream.ask("a")
            for pod in history:
                served.server.on_snapshot(snapshot("a", pod))
                assert await stream.hear() == {"a": {pod}}
                await stream.answer()
            versions.append(stream.last.version_info)
    assert versions[0] == versions[1]


async def test_an_incremental_subscriber_that_comes_back_gets_only_what_it_lacks(
    served: Served, channel: grpc.aio.Channel
) -> None:
    for model in ("a", "b"):
        served.server.on_snapshot(snapshot(model, "x"))
    first = Delta(channel)
    await first.ask("a", "b")
    await first.hear()
    first.call.cancel()
    served.server.on_snapshot(snapshot("b", "y"))
    again = Delta(channel)
    await again.ask("a", "b", has=first.versions)
    assert await again.hear() == {"b": {"y"}}


async def test_an_incremental_subscriber_can_add_and_drop_names(served: Served, channel: grpc.aio.Channel) -> None:
    for model in ("a", "b"):
        served.server.on_snapshot(snapshot(model, "x"))
    stream = Delta(channel)
    await stream.ask("a")
    assert await stream.hear() == {"a": {"x"}}
    await stream.answer()
    await stream.ask("b", drop=("a",))
    assert await stream.hear() == {"b": {"x"}}
    await stream.answer()
    served.server.on_snapshot(snapshot("a", "y"))
    served.server.on_snapshot(snapshot("b", "y"))
    assert await stream.hear() == {"b": {"y"}}


async def test_types_that_are_not_served_are_passed_over(served: Served, channel: grpc.aio.Channel) -> None:
    served.server.on_snapshot(snapshot("a", "x"))
    stream = Sotw(channel)
    stream.type_url = CLUSTER
    await stream.ask()
    stream.type_url = ENDPOINTS
    await stream.ask("a")
    assert await stream.hear() == {"a": {"x"}}


async def test_the_weight_of_a_new_pod_grows_until_it_is_a_full_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "WARM_UP_S", 0.001)
    now = 100.0
    server = XdsServer("127.0.0.1", 0, Terms(slow_start=10.0), XdsMetrics(CollectorRegistry()), clock=lambda: now)
    await server.start()
    server.on_snapshot(snapshot("a"))
    server.on_snapshot(snapshot("a", "new"))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stream = Sotw(channel)
        await stream.ask("a")
        seen = []
        for now in (100.0, 103.0, 107.0, 200.0):  # noqa: B007 - the clock reads it
            await stream.hear()
            (resource,) = stream.last.resources
            (zone,) = ClusterLoadAssignment.FromString(resource.value).endpoints
            seen.append(zone.lb_endpoints[0].load_balancing_weight.value)
            await stream.answer()
    await server.close()
    assert seen == [10, 30, 70, 100]


async def test_streams_are_counted_and_forgotten_when_they_end(served: Served, subscribe: Subscribe) -> None:
    stream = subscribe()
    await stream.ask("a")
    await until(lambda: streams(served) == 1)
    await stream.call.done_writing()
    assert await stream.call.code() is grpc.StatusCode.OK
    await until(lambda: streams(served) == 0)
    broken = subscribe()
    await broken.ask("a")
    await until(lambda: streams(served) == 1)
    broken.call.cancel()
    await until(lambda: streams(served) == 0)


async def test_more_subscribers_than_allowed_are_sent_away(serve: Serve) -> None:
    served = await serve(Terms(max_streams=1))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{served.server.port}") as channel:
        first = Sotw(channel)
        await first.ask("a")
        await until(lambda: streams(served) == 1)
        assert await Sotw(channel).call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        served.server.on_snapshot(snapshot("a", "x"))
        assert await first.hear() == {"a": {"x"}}
        assert served.count("streams_refused_total", reason="too_many_streams") == 1
        first.call.cancel()
        await until(lambda: streams(served) == 0)
        next_one = Sotw(channel)
        await next_one.ask("a")
        assert await next_one.hear() == {"a": {"x"}}


async def test_a_subscriber_to_more_names_than_there_can_be_is_sent_away(
    served: Served, subscribe: Subscribe
) -> None:
    stream = subscribe()
    await stream.ask(*(f"model-{number}" for number in range(MAX_NAMES + 1)))
    assert await stream.call.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert served.count("streams_refused_total", reason="too_many_names") == 1


async def test_what_is_no_request_ends_its_stream_and_no_other(served: Served, channel: grpc.aio.Channel) -> None:
    good = Sotw(channel)
    await good.ask("a")
    for garbage, code in (
        (b"\xff\xff\xff", grpc.StatusCode.INVALID_ARGUMENT),
        (bytes(LONGEST_REQUEST + 1), grpc.StatusCode.RESOURCE_EXHAUSTED),
    ):
        call: Any = channel.stream_stream(f"/{AGGREGATED_SERVICE}/StreamAggregatedResources")()
        await call.write(garbage)
        assert await call.code() is code
    served.server.on_snapshot(snapshot("a", "x"))
    assert await good.hear() == {"a": {"x"}}


async def test_only_who_shows_the_token_may_subscribe(serve: Serve) -> None:
    served = await serve(Terms(slow_start=0.0, token="open sesame"))
    served.server.on_snapshot(snapshot("a", "x"))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{served.server.port}") as channel:
        refused: tuple[dict[str, str], ...] = (
            {},
            {"authorization": "Bearer open"},
            {"authorization": "open sesame"},
        )
        for metadata in refused:
            assert await Sotw(channel, metadata=metadata).call.code() is grpc.StatusCode.UNAUTHENTICATED
        stream = Sotw(channel, metadata={"authorization": "Bearer open sesame"})
        await stream.ask("a")
        assert await stream.hear() == {"a": {"x"}}
    assert served.count("streams_refused_total", reason="unauthenticated") == 3


async def test_with_tls_only_who_has_a_certificate_may_subscribe(serve: Serve) -> None:
    key, certificate = self_signed()
    served = await serve(Terms(slow_start=0.0, tls=Tls(certificate=certificate, key=key, client_ca=certificate)))
    served.server.on_snapshot(snapshot("a", "x"))
    address = f"127.0.0.1:{served.server.port}"
    async with grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(certificate)) as channel:
        assert await Sotw(channel).call.code() is grpc.StatusCode.UNAVAILABLE
    credentials = grpc.ssl_channel_credentials(certificate, key, certificate)
    async with grpc.aio.secure_channel(address, credentials) as channel:
        stream = Sotw(channel)
        await stream.ask("a")
        assert await stream.hear() == {"a": {"x"}}


async def test_connections_that_say_nothing_are_few_and_do_not_last(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "WORDLESS_MS", 1_000)
    monkeypatch.setattr(connections_module, "SPARE_CONNECTIONS", 4)
    served = await serve(Terms(slow_start=0.0, max_streams=4))
    served.server.on_snapshot(snapshot("a", "x"))
    wordless = [await asyncio.open_connection("127.0.0.1", served.server.port) for _ in range(12)]
    try:
        # One that is let in is greeted with the settings of HTTP/2.
        greetings = await asyncio.gather(*(greeting(reader) for reader, _ in wordless))
        assert 0 < sum(map(bool, greetings)) <= 8
        async with asyncio.timeout(10):
            await asyncio.gather(*(ended(reader) for reader, _ in wordless))
    finally:
        for _, writer in wordless:
            writer.close()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{served.server.port}") as channel:
        stream = Sotw(channel)
        await stream.ask("a")
        assert await stream.hear() == {"a": {"x"}}


async def greeting(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(1)
    except ConnectionError:
        return b""


async def ended(reader: asyncio.StreamReader) -> None:
    with suppress(ConnectionError):
        while await reader.read(1024):
            pass


async def test_a_port_that_is_taken_is_said_so(served: Served) -> None:
    second = XdsServer("127.0.0.1", served.server.port, Terms(), XdsMetrics(CollectorRegistry()))
    with pytest.raises(XdsSettingError) as caught:
        await second.start()
    assert caught.value.key == "XDS_PORT"
    assert str(served.server.port) in caught.value.problem
    await second.close()


async def test_a_certificate_of_another_key_is_said_so() -> None:
    terms = Terms(tls=Tls(certificate=self_signed()[1], key=self_signed()[0]))
    server = XdsServer("127.0.0.1", 0, terms, XdsMetrics(CollectorRegistry()))
    with pytest.raises(XdsSettingError, match="certificate"):
        await server.start()
    await server.close()


def pushes(served: Served) -> float:
    return sum(served.count("pushes_total", kind=kind) for kind in ("sotw", "delta"))


def nacks(served: Served) -> float:
    return sum(served.count("nacks_total", kind=kind) for kind in ("sotw", "delta"))


def streams(served: Served) -> float:
    return sum(served.count("streams", kind=kind) for kind in ("sotw", "delta"))
