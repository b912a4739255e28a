"""What a probe takes for proof."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from copydesk.common.messages import Endpoint, EndpointProtocol, EndpointState
from copydesk.eds.probe import Prober, Sighting, probe
from tests.fixtures.fake_pod import MODEL, FakePod
from tests.fixtures.fleet_certificates import gateway_client, make_certificates, pod_server
from tests.fixtures.nats import free_port
from tests.fixtures.openai_server import OpenAiServer
from tests.fixtures.until import until


async def look(pod: FakePod, *, model: str = MODEL, token: str = "") -> Sighting:
    return await probe(model, pod.endpoint(), token=token, timeout=0.5)


async def test_a_pod_that_greets_is_alive_and_one_whose_port_is_closed_is_gone() -> None:
    pod = await FakePod().start()
    assert await look(pod) is Sighting.ALIVE
    await pod.stop()
    assert await look(pod) is Sighting.GONE


async def test_a_pod_of_another_model_or_one_that_says_goodbye_is_not_the_endpoint() -> None:
    pod = await FakePod().start()
    assert await look(pod, model="other") is Sighting.GONE
    pod.state = EndpointState.DRAINING
    assert await look(pod) is Sighting.GONE
    await pod.stop()


async def test_a_pod_that_says_it_is_not_ready_is_only_there_for_who_lists_it_so() -> None:
    pod = await FakePod().start()
    pod.state = EndpointState.WARMING
    assert await look(pod) is Sighting.GONE
    found = await probe(MODEL, pod.endpoint(EndpointState.WARMING), token="", timeout=0.5)
    assert found is Sighting.ALIVE
    await pod.stop()


async def test_a_pod_that_refuses_the_token_is_no_proof() -> None:
    pod = FakePod()
    pod.token = "secret"
    await pod.start()
    assert await look(pod) is Sighting.UNKNOWN
    assert await look(pod, token="secret") is Sighting.ALIVE
    await pod.stop()


async def test_a_pod_under_tls_is_asked_with_a_certificate_and_nothing_else_is_proof(tmp_path: Path) -> None:
    fleet, other = make_certificates(tmp_path / "fleet"), make_certificates(tmp_path / "other")
    pod, server = FakePod(), OpenAiServer()
    pod.tls = pod_server(fleet)
    await pod.start()
    await server.start(tls=pod_server(fleet))
    for endpoint in (pod.endpoint(), server.endpoint()):
        for tls, found in (
            (gateway_client(fleet, "eds"), Sighting.ALIVE),
            (gateway_client(other, "eds"), Sighting.UNKNOWN),
            (None, Sighting.UNKNOWN),
        ):
            assert await probe(MODEL, endpoint, token="", timeout=5.0, tls=tls) is found
    await pod.stop()
    await server.stop()
    gone = await probe(MODEL, pod.endpoint(), token="", timeout=5.0, tls=gateway_client(fleet, "eds"))
    assert gone is Sighting.GONE


@pytest.mark.parametrize("protocol", EndpointProtocol)
@pytest.mark.parametrize(("host", "port"), [("a" * 64, 80), ("a\0b", 80), (".", 80), ("127.0.0.1", 70_000)])
async def test_an_address_that_can_be_none_ends_no_probe(protocol: EndpointProtocol, host: str, port: int) -> None:
    suspect = Endpoint(id="x", host=host, port=port, state=EndpointState.READY, protocol=protocol)
    assert await probe(MODEL, suspect, token="", timeout=0.5) is Sighting.UNKNOWN


async def test_silence_is_no_proof() -> None:
    async def say_nothing(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            writer.close()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    frozen = Endpoint(id="p", host="127.0.0.1", port=port, state=EndpointState.READY)
    assert await probe(MODEL, frozen, token="", timeout=0.05) is Sighting.UNKNOWN
    server.close()
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_the_prober_tells_of_each_suspect_that_is_gone_and_stops_when_closed(host: str) -> None:
    gone: list[tuple[str, str]] = []
    prober = Prober(lambda model, endpoint: gone.append((model, endpoint.id)), token="", timeout=0.5)
    pod = await FakePod("alive").start()
    dead = Endpoint(id="dead", host=host, port=free_port(), state=EndpointState.READY)
    prober.watch([(MODEL, pod.endpoint()), (MODEL, dead)])
    await until(lambda: gone == [(MODEL, "dead")], timeout=5)
    await prober.close()
    await pod.stop()
