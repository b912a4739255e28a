"""The command that container engines run to learn whether a service is well."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from copydesk.common.healthcheck import MISUSED, UNWELL, WELL, main
from tests.fixtures.nats import free_port


@contextmanager
def answering(answer: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """Answer one connection with these bytes; give the port, and what was asked."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                asked.append(connection.recv(4096))
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1], asked
        thread.join()


def test_it_is_well_when_the_status_port_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with answering(b'HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{"ready":true}') as (port, asked):
        assert main([str(port), "/readyz"], {}) == WELL
    assert asked[0].startswith(b"GET /readyz HTTP/1.1\r\n")
    assert capsys.readouterr().out == 'HTTP/1.1 200 OK {"ready":true}\n'


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 503 Service Unavailable\r\n\r\n{}", b"HTTP/1.1 404 Not Found\r\n\r\n", b"hello", b""]
)
def test_it_is_unwell_when_the_answer_is_no_good_one(answer: bytes) -> None:
    with answering(answer) as (port, _):
        assert main([str(port), "/healthz"], {}) == UNWELL


def test_it_is_unwell_when_nobody_listens(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(free_port()), "/healthz"], {}) == UNWELL
    assert "refused" in capsys.readouterr().out


def test_the_port_may_be_that_of_a_variable() -> None:
    with answering(b"HTTP/1.1 200 OK\r\n\r\n") as (port, _):
        assert main(["COPYDESK_EDS_METRICS_PORT", "/healthz"], {"COPYDESK_EDS_METRICS_PORT": str(port)}) == WELL


@pytest.mark.parametrize("arguments", [[], ["9100"], ["9100", "healthz"], ["NO_SUCH", "/"], ["70000", "/"]])
def test_what_makes_no_sense_is_told_apart(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments, {}) == MISUSED
    assert capsys.readouterr().err
