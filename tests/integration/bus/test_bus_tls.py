"""The bus under TLS, against a real nats-server that verifies its clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Protocol

import pytest
import structlog

from copydesk.common.bus import Bus, BusUrlError
from copydesk.common.messages import EndpointsSnapshot, endpoints_subject
from copydesk.common.tls import ClientTls, client_tls
from tests.fixtures.fleet_certificates import (
    NATS_NAME,
    make_certificates,
    renew_certificates,
    stranger_files,
    tls_files,
)
from tests.fixtures.nats import NatsServer, running_binary
from tests.fixtures.until import until

SUBJECT = endpoints_subject("gec-en")
SNAPSHOT = EndpointsSnapshot(model="gec-en", epoch=1, generation=1, sent_at=0.0, endpoints=())


class Connect(Protocol):
    """Makes a bus that is closed at the end of the test."""

    async def __call__(self, url: str, tls: ClientTls | None) -> Bus: ...


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    async with AsyncExitStack() as stack:

        async def make(url: str, tls: ClientTls | None) -> Bus:
            bus = await Bus.connect(url, name="test", token="sesame", tls=tls)
            stack.push_async_callback(bus.close)
            return bus

        yield make


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    return make_certificates(tmp_path / "fleet")


@pytest.fixture
def server(tmp_path: Path, fleet: Path) -> Iterator[NatsServer]:
    own = fleet / "nats"
    configuration = f"""
        authorization {{ token: sesame }}
        tls {{
          cert_file: "{own / "tls.crt"}"
          key_file: "{own / "tls.key"}"
          ca_file: "{own / "ca.crt"}"
          verify: true
        }}
    """
    with running_binary(tmp_path, configuration=configuration) as running:
        yield running


def nats_tls(folder: Path, component: str = "gateway", name: str = NATS_NAME) -> ClientTls:
    return client_tls(tls_files(folder, component, "nats"), name)


async def refused(url: str, connect: Connect, tls: ClientTls | None) -> str:
    """Return why the first attempt failed."""
    with structlog.testing.capture_logs() as logs:
        bus = await connect(url, tls)
        await until(lambda: any(entry["event"] == "bus_unreachable" for entry in logs))
        assert not bus.connected
        await bus.close()
    return next(str(entry["error"]) for entry in logs if entry["event"] == "bus_unreachable")


async def test_messages_pass_between_parts_with_certificates(
    server: NatsServer, connect: Connect, fleet: Path
) -> None:
    sender, receiver = (
        await connect(server.url, nats_tls(fleet, "eds")),
        await connect(server.url, nats_tls(fleet)),
    )
    assert await sender.wait_connected(10)
    assert await receiver.wait_connected(10)
    got: list[EndpointsSnapshot] = []
    await receiver.subscribe(SUBJECT, EndpointsSnapshot, got.append)
    sender.publish(SUBJECT, SNAPSHOT)
    await until(lambda: bool(got))
    assert got == [SNAPSHOT]


async def test_who_has_no_certificate_or_another_authoritys_is_refused(
    server: NatsServer, connect: Connect, fleet: Path, tmp_path: Path
) -> None:
    other = make_certificates(tmp_path / "other")
    stranger = client_tls(stranger_files(fleet, other, "gateway"), NATS_NAME)
    assert await refused(server.url, connect, stranger)
    assert await refused(server.url, connect, None)


async def test_a_server_of_another_name_or_authority_is_refused(
    server: NatsServer, connect: Connect, fleet: Path, tmp_path: Path
) -> None:
    other = make_certificates(tmp_path / "other")
    assert "Hostname mismatch" in await refused(server.url, connect, nats_tls(fleet, name="copydesk-inference"))
    assert "certificate verify failed" in await refused(server.url, connect, nats_tls(other))


async def test_a_server_that_offers_no_tls_never_sees_the_token(connect: Connect, fleet: Path) -> None:
    heard = bytearray()

    async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","version":"2.15.1","max_payload":1048576}\r\n')
        heard.extend(await reader.read())
        writer.close()

    async with await asyncio.start_server(pretend, "127.0.0.1") as plain:
        host, port = plain.sockets[0].getsockname()
        for url, tls in ((f"nats://{host}:{port}", nats_tls(fleet)), (f"tls://{host}:{port}", None)):
            assert "the server speaks without TLS" in await refused(url, connect, tls)
    assert bytes(heard) == b""


async def test_renewed_files_count_when_the_server_comes_back(
    server: NatsServer, connect: Connect, fleet: Path
) -> None:
    tls = nats_tls(fleet)
    bus = await connect(server.url, tls)
    assert await bus.wait_connected(10)
    context = tls.context()
    server.stop()
    await until(lambda: not bus.connected)
    renew_certificates(fleet)
    server.start()
    assert await bus.wait_connected(20)
    assert tls.context() is not context


async def test_a_websocket_is_refused_where_tls_is_wanted(connect: Connect, fleet: Path) -> None:
    with pytest.raises(BusUrlError):
        await connect("wss://127.0.0.1:8443", nats_tls(fleet))
