"""A pod and its gateways under one authority: who else comes is refused, and renewed files count at once."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from copydesk.common.rpc import InboundCall, RpcError, Status, TcpAddress
from copydesk.common.tls import ClientTls, client_tls
from tests.fixtures.fleet_certificates import (
    POD_NAME,
    gateway_client,
    make_certificates,
    pod_server,
    renew_certificates,
    stranger_files,
)

if TYPE_CHECKING:
    from tests.integration.rpc.conftest import Open, Serve

ANYWHERE = TcpAddress("127.0.0.1", 0)
encode = msgspec.msgpack.encode


def echo(call: InboundCall) -> None:
    call.reply(bytes(call.payload))


def under(tls: ClientTls) -> dict[str, Any]:
    return {"tls": tls.context(), "tls_name": tls.name}


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    return make_certificates(tmp_path / "fleet")


@pytest.fixture
def other(tmp_path: Path) -> Path:
    return make_certificates(tmp_path / "other")


async def test_a_gateway_checks_the_name_of_a_pod_and_not_its_address(
    serve: Serve, connect: Open, fleet: Path
) -> None:
    _, where = await serve(echo, ANYWHERE, tls=pod_server(fleet))
    channel = await connect(where, **under(gateway_client(fleet)))
    payload = encode(b"x" * 1_000_000)
    assert bytes((await channel.call(payload, deadline_ms=20_000)).payload) == payload
    with pytest.raises(RpcError, match="Hostname mismatch"):
        await connect(where, tls=gateway_client(fleet).context(), tls_name="copydesk-nats")


async def test_a_part_that_is_no_server_cannot_pass_for_a_pod(serve: Serve, connect: Open, fleet: Path) -> None:
    for name in ("tls.crt", "tls.key"):
        (fleet / "gateway" / name).replace(fleet / "inference" / name)
    _, where = await serve(echo, ANYWHERE, tls=pod_server(fleet))
    gateway = client_tls(stranger_files(fleet, fleet, "eds"), "copydesk-gateway")
    with pytest.raises(RpcError, match="unsuitable certificate purpose"):
        await connect(where, **under(gateway))


async def test_no_certificate_another_authoritys_and_plain_text_are_refused(
    serve: Serve, connect: Open, fleet: Path, other: Path
) -> None:
    served: list[InboundCall] = []
    server, where = await serve(served.append, ANYWHERE, tls=pod_server(fleet))
    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    bare.load_verify_locations(fleet / "gateway" / "ca.crt")
    stranger = client_tls(stranger_files(fleet, other, "gateway"), POD_NAME)
    for options in ({"tls": bare, "tls_name": POD_NAME}, under(stranger), {}):
        with pytest.raises(RpcError):
            await connect(where, **options)
    channel = await connect(where, **under(gateway_client(fleet)))
    assert server.connections == 1
    assert served == []
    await channel.close()


async def test_a_gateway_refuses_a_pod_of_another_authority_and_one_without_tls(
    serve: Serve, connect: Open, fleet: Path, other: Path
) -> None:
    for tls in (pod_server(other), None):
        _, where = await serve(echo, ANYWHERE, tls=tls)
        with pytest.raises(RpcError):
            await connect(where, **under(gateway_client(fleet)), timeout=5.0)


async def test_renewed_files_count_for_new_connections_and_leave_others_alone(
    serve: Serve, connect: Open, fleet: Path
) -> None:
    _, where = await serve(echo, ANYWHERE, tls=pod_server(fleet))
    gateway = gateway_client(fleet)
    before = await connect(where, **under(gateway))
    context = gateway.context()
    renew_certificates(fleet)
    after = await connect(where, **under(gateway))
    assert gateway.context() is not context
    for channel in (before, after):
        assert (await channel.call(encode(1), deadline_ms=5000)).status is Status.OK


async def test_a_new_authority_lets_in_its_own_and_the_old_one_no_more(
    serve: Serve, connect: Open, fleet: Path, other: Path
) -> None:
    _, where = await serve(echo, ANYWHERE, tls=pod_server(fleet))
    former, new = gateway_client(fleet), gateway_client(other)
    standing = await connect(where, **under(former))
    for name in ("tls.key", "tls.crt", "ca.crt"):
        (other / "inference" / name).replace(fleet / "inference" / name)
    with pytest.raises(RpcError):
        await connect(where, **under(former))
    with pytest.raises(RpcError):  # the former authority's certificate, to a pod that it would trust
        await connect(where, **under(client_tls(stranger_files(other, fleet, "gateway"), POD_NAME)))
    channel = await connect(where, **under(new))
    assert (await channel.call(encode(1), deadline_ms=5000)).status is Status.OK
    assert (await standing.call(encode(1), deadline_ms=5000)).status is Status.OK


async def test_a_client_that_names_no_server_is_checked_by_the_newest_files_too(
    serve: Serve, connect: Open, fleet: Path, other: Path
) -> None:
    _, where = await serve(echo, ANYWHERE, tls=pod_server(fleet))
    for name in ("tls.key", "tls.crt", "ca.crt"):
        (other / "inference" / name).replace(fleet / "inference" / name)
    context = client_tls(stranger_files(other, fleet, "gateway"), POD_NAME).context()
    context.check_hostname = False
    with pytest.raises(RpcError):
        await connect(where, tls=context)  # an address is sent as no server's name
