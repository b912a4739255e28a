"""How the gateway process begins, and how it says that it cannot."""

from __future__ import annotations

import hashlib
import socket
from pathlib import Path

import pytest

from tests.integration.gateway.conftest import Site

NOWHERE = "nats://127.0.0.1:1"


async def refusal(site: Site, **settings: object) -> str:
    gateway = site.unstarted(nats_url=NOWHERE, **settings)
    await gateway.spawn()
    assert await gateway.ended() == 2, gateway.log()
    assert "Traceback" not in gateway.log()
    lines = gateway.log().splitlines()
    assert len(lines) == 1
    return lines[0]


async def test_it_serves_without_nats_and_without_pods(site: Site) -> None:
    client = await site.client(await site.gateway(NOWHERE))
    assert (await client.get("/healthz")).status_code == 200
    assert (await client.get("/readyz")).status_code == 503
    assert (await client.get("/v1/fleet")).json()["discovery_connected"] is False


async def test_a_port_that_is_taken_is_one_line_and_status_2(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = await refusal(site, port=port)
    assert f"127.0.0.1:{port}" in line
    assert "in use" in line
    assert "COPYDESK_GATEWAY_PORT" in line


async def test_a_host_that_is_no_name_is_one_line_and_status_2(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"web:{hashlib.sha256(b'k1').hexdigest()}\n")
    assert "COPYDESK_GATEWAY_HOST" in await refusal(site, host="a..b", api_keys_file=file)


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
async def test_other_machines_are_refused_without_keys(site: Site, host: str) -> None:
    assert "COPYDESK_GATEWAY_API_KEYS_FILE" in await refusal(site, host=host)


async def test_other_machines_are_served_with_keys(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"web:{hashlib.sha256(b'k1').hexdigest()}\n")
    client = await site.client(await site.gateway(NOWHERE, host="0.0.0.0", api_keys_file=file))
    assert (await client.get("/v1/models")).status_code == 401
    assert (await client.get("/v1/models", headers={"Authorization": "Bearer k1"})).status_code == 200


async def test_a_bad_setting_is_one_line_and_status_2(site: Site) -> None:
    assert "COPYDESK_GATEWAY_DEADLINE_MS='soon'" in await refusal(site, deadline_ms="soon")


async def test_a_missing_file_of_keys_is_one_line_and_status_2(site: Site, tmp_path: Path) -> None:
    line = await refusal(site, api_keys_file=tmp_path / "nowhere")
    assert "nowhere" in line
    assert "COPYDESK_GATEWAY_API_KEYS_FILE" in line


async def test_a_nats_address_that_is_none_is_one_line_and_status_2(site: Site) -> None:
    gateway = site.unstarted(nats_url="http//x")
    await gateway.spawn()
    assert await gateway.ended() == 2
    (line,) = gateway.log().splitlines()
    assert "COPYDESK_GATEWAY_NATS_URL" in line
