"""The mock pods, and the load."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench.gateway.processes import StartError, pinned

READY_SECONDS = 30.0
KEY = "bench-key"

COMPLETION = (
    b'{"model": "gec-en", "temperature": 0, "max_tokens": 64, "prompt": "The comittee have decide that the '
    b"results, which was published last week, is correct, and that nobody need to go through all of them again "
    b'before the next meeting take place in the spring of the following year."}'
)
CORRECTION = b'{"text": "The comittee have decide that the results, which was published last week, is correct."}'


@dataclass(frozen=True, slots=True)
class Question:
    """A request, over and over: its path and its body."""

    path: str
    body: bytes

    def request(self) -> bytes:
        """The bytes that are sent."""
        head = (
            f"POST {self.path} HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {KEY}\r\nX-Request-Deadline-Ms: 5000\r\n"
            f"Content-Length: {len(self.body)}\r\n\r\n"
        )
        return head.encode() + self.body


COMPLETIONS = Question("/v1/completions", COMPLETION)
CORRECTIONS = Question("/v1/correct", CORRECTION)


class Load(msgspec.Struct, frozen=True):
    """What the load program saw."""

    completed: int
    errors: int
    seconds: float
    p50_ms: float
    p99_ms: float

    @property
    def rate(self) -> float:
        """Requests a second."""
        return self.completed / self.seconds


@dataclass(frozen=True, slots=True)
class Generator:
    """The compiled load program, and the core it runs on."""

    program: Path
    core: int
    connections: int = 64

    def run(self, port: int, question: Question, seconds: float, rate: float = 0) -> Load:
        """Put load on a port; at `rate` 0 as much as it takes. Raises `CalledProcessError`."""
        command = ["taskset", "--cpu-list", str(self.core), str(self.program), str(port), str(self.connections)]
        command += [f"{seconds:g}", f"{rate:g}"]
        done = subprocess.run(command, input=question.request(), stdout=subprocess.PIPE, check=True)
        return msgspec.json.decode(done.stdout, type=Load)


@contextlib.contextmanager
def mock_pods(program: Path, count: int, core: int, log: Path) -> Iterator[range]:
    """Run mock pods; yields their ports."""
    first = _free_ports(count)
    with pinned([str(program), str(first), str(count)], core, log) as process:
        await_port(first + count - 1, "mock_pods", process, log)
        yield range(first, first + count)


def await_port(port: int, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Return once something listens there. Raises `StartError`."""
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise StartError(name, log.read_text(errors="replace")[-2000:])


def _free_ports(count: int) -> int:
    """Return the first of `count` ports in a row that nobody listens on, below those that the kernel hands out."""
    for first in range(20000, 32000 - count, count):
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
            return first
    raise StartError("mock_pods", f"no {count} free ports in a row")
