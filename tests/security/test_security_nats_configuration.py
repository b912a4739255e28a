"""The configuration of NATS that compose.yaml mounts, with a real server: who has no token gets nowhere."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.nats import NatsServer, free_port, running_binary

TOP = Path(__file__).parents[2]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    """It, with the secrets that the script makes; the fixture chooses address and ports."""
    subprocess.run([TOP / "scripts" / "compose-secrets.sh", tmp_path / "secrets"], check=True, capture_output=True)
    configuration = (TOP / "deploy" / "nats" / "nats.conf").read_text()
    included = "../../run/secrets/nats_auth"
    assert included in configuration
    configuration = configuration.replace(included, os.path.relpath(tmp_path / "secrets" / "nats_auth", tmp_path))
    configuration = configuration.replace("127.0.0.1:8222", f"127.0.0.1:{free_port()}")
    with running_binary(tmp_path, configuration=configuration) as running:
        yield running


def heard(server: NatsServer, shown: dict[str, str]) -> bytes:
    """Connect, publish a list of pods in the same breath, and return all that the server says until it is done."""
    connect = json.dumps({"verbose": False, "pedantic": False} | shown)
    published = "PUB copydesk.v1.endpoints.tiny 2\r\n{}\r\n"
    said = b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        client.sendall(f"CONNECT {connect}\r\n{published}PING\r\n".encode())
        while b"PONG" not in said and (more := client.recv(4096)):
            said += more
    return said


@pytest.mark.parametrize(
    "shown",
    [{}, {"auth_token": "wrong"}, {"auth_token": ""}, {"user": "copydesk", "pass": "copydesk"}],
    ids=["nothing", "another token", "an empty token", "a name and a password"],
)
def test_who_has_not_the_token_is_refused(server: NatsServer, shown: dict[str, str]) -> None:
    said = heard(server, shown)
    assert b"Authorization Violation" in said
    assert b"PONG" not in said


def test_who_has_the_token_is_let_in(server: NatsServer, tmp_path: Path) -> None:
    token = (tmp_path / "secrets" / "nats_token").read_text()
    said = heard(server, {"auth_token": token})
    assert b"PONG" in said
    assert b"-ERR" not in said


def test_it_is_looked_at_from_its_own_container_alone() -> None:
    configuration = (TOP / "deploy" / "nats" / "nats.conf").read_text()
    assert 'http: "127.0.0.1:8222"' in configuration
    assert not [line for line in configuration.splitlines() if line.startswith(("leafnodes", "websocket", "mqtt"))]
