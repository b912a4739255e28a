"""What is checked before a fleet starts: free ports, who holds the others, keys."""

from __future__ import annotations

import os
import random
import socket

import pytest

from copydesk.cli.commands.up import CannotStartError, check_key, check_port
from copydesk.cli.fleet.ports import free_port, is_free, port_holder

HOST = "127.0.0.1"


def test_a_free_port_can_be_listened_on() -> None:
    port = free_port(HOST, random.Random())
    with socket.socket() as server:
        server.bind((HOST, port))


def test_a_port_with_a_listener_is_not_free_and_its_holder_is_named() -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        assert not is_free(HOST, port)
        assert port_holder(port).pid == os.getpid()


def test_a_taken_port_is_refused_with_another_one_to_try() -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(CannotStartError, match=f"port {port} is in use by process {os.getpid()}") as caught:
            check_port(port)
        assert "--port" in caught.value.hint


@pytest.mark.parametrize(("variable", "value"), [("API_KEYS_FILE", "/keys"), ("API_KEYS_REDIS", "True")])
def test_a_gateway_that_asks_for_keys_needs_one_here(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COPYDESK_API_KEY", "")
    check_key()
    monkeypatch.setenv(f"COPYDESK_GATEWAY_{variable}", value)
    with pytest.raises(CannotStartError, match="COPYDESK_API_KEY is not"):
        check_key()
    monkeypatch.setenv("COPYDESK_API_KEY", "k1")
    check_key()
