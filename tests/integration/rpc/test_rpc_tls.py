"""The same protocol under TLS, with client certificates where the server wants them."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from copydesk.common.rpc import Address, InboundCall, RpcConnectError, RpcError, Status

if TYPE_CHECKING:
    from tests.integration.rpc.conftest import Open, Serve

encode = msgspec.msgpack.encode


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for this machine with its key, in one PEM file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName(
        [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    )
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        + signed.public_bytes(serialization.Encoding.PEM)
    )
    return path


def server_context(certificate: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    return context


def echo(call: InboundCall) -> None:
    call.reply(bytes(call.payload))


async def test_requests_pass_under_tls(serve: Serve, connect: Open, address: Address, certificate: Path) -> None:
    server, where = await serve(echo, address, tls=server_context(certificate))
    channel = await connect(where, tls=ssl.create_default_context(cafile=str(certificate)))
    payload = encode(b"x" * 1_000_000)
    response = await channel.call(payload, deadline_ms=20_000)
    assert bytes(response.payload) == payload
    assert await server.drain(5)
    await server.close()


async def test_a_client_that_does_not_trust_the_server_does_not_connect(
    serve: Serve, connect: Open, address: Address, certificate: Path
) -> None:
    _, where = await serve(echo, address, tls=server_context(certificate))
    with pytest.raises(RpcConnectError) as caught:
        await connect(where, tls=ssl.create_default_context())
    assert "certificate" in caught.value.reason.lower()


async def test_a_client_without_tls_is_refused(
    serve: Serve, connect: Open, address: Address, certificate: Path
) -> None:
    _, where = await serve(echo, address, tls=server_context(certificate))
    with pytest.raises(RpcError):
        await connect(where)


async def test_a_client_certificate_is_asked_for_where_the_server_wants_one(
    serve: Serve, connect: Open, address: Address, certificate: Path
) -> None:
    context = server_context(certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(certificate)
    _, where = await serve(echo, address, tls=context)
    with pytest.raises(RpcError):
        await connect(where, tls=ssl.create_default_context(cafile=str(certificate)))
    with_certificate = ssl.create_default_context(cafile=str(certificate))
    with_certificate.load_cert_chain(certificate)
    channel = await connect(where, tls=with_certificate)
    assert (await channel.call(encode(1), deadline_ms=5000)).status is Status.OK
