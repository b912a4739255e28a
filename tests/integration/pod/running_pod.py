"""A real pod for a test: the supervisor as a child process, and what its log says of the others."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from copydesk.common.messages import EndpointState
from copydesk.common.rpc import Channel, Fault, Pong, Response, RpcError, Status, TcpAddress
from copydesk.common.tasks import CorrectedSentence, CorrectSentence
from tests.fixtures.nats import free_port

PATIENCE = 60.0
NOWHERE = "nats://127.0.0.1:1"

T = TypeVar("T")


def eventually(what: str, look: Callable[[], T | None], timeout: float = PATIENCE) -> T:
    """Look until something is seen; fail with `what` after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if seen := look():
            return seen
        time.sleep(0.02)
    raise AssertionError(f"not within {timeout:g} s: {what}")


def alive(pid: int) -> bool:
    """Say whether a process runs; one that is dead but not yet reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in {"Z", "X"}


class RunningPod:
    """A pod, its port and its log."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process = process
        self.port = port
        self._log = log

    def events(self, event: str, **fields: object) -> list[dict[str, Any]]:
        """Return the log's lines about `event` that have those fields."""
        whole, _, _ = self._log.read_text().rpartition("\n")
        lines = [line for line in whole.splitlines() if line.startswith("{")]
        return [
            entry
            for entry in map(json.loads, lines)
            if entry["event"] == event and fields.items() <= entry.items()
        ]

    def output(self) -> str:
        """Return all that the pod wrote to standard error."""
        return self._log.read_text()

    def pid(self, child: str) -> int:
        """Return the process id of the child that was started last under that name."""
        return int(self.events("child_started", child=child)[-1]["pid"])

    def wait_ready(self, times: int = 1) -> None:
        """Wait until the pod has become ready that many times."""

        def look() -> bool:
            assert self.process.poll() is None, self.output()
            return len(self.events("pod_state", state="ready")) >= times

        eventually(f"the pod ready ({times})", look)

    async def channel(self) -> Channel:
        """Connect as a gateway does."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return await Channel.open(TcpAddress("127.0.0.1", self.port), name="test", timeout=5.0)
            except RpcError:
                if time.monotonic() > deadline:
                    raise

    def terminate(self) -> int:
        """Send SIGTERM and wait for the end."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)


def environment(model_dir: Path, settings: Mapping[str, object]) -> dict[str, str]:
    """Return the environment of a pod: the settings that every test wants, then those of this one."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("COPYDESK_")}
    chosen: dict[str, object] = {
        "MODEL_DIR": model_dir,
        "PORT": free_port(),
        "NATS_URL": NOWHERE,
        "POD": "pod-under-test",
        "THREADS": 1,
        "DTYPE": "float32",
        "SLOTS": 8,
        "REPORT_INTERVAL_MS": 50,
        **settings,
    }
    return inherited | {f"COPYDESK_INFERENCE_{name}": str(value) for name, value in chosen.items()}


@contextmanager
def running_pod(model_dir: Path, log: Path, **settings: object) -> Iterator[RunningPod]:
    """Start a pod and end it, however the test ends."""
    variables = environment(model_dir, settings)
    with log.open("wb") as stderr:
        command = [sys.executable, "-m", "copydesk.inference"]
        process = subprocess.Popen(command, env=variables, stderr=stderr)
    pod = RunningPod(process, int(variables["COPYDESK_INFERENCE_PORT"]), log)
    try:
        yield pod
    finally:
        process.kill()
        process.wait()


async def until(what: str, look: Callable[[], bool], timeout: float = PATIENCE) -> None:
    """Look until something is seen while the event loop goes on; fail with `what` after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not look():
        assert time.monotonic() < deadline, f"not within {timeout:g} s: {what}"
        await asyncio.sleep(0.01)


def ask(text: str) -> bytes:
    """Encode the request to correct `text`."""
    return msgspec.msgpack.encode(CorrectSentence(text))


def answer(response: Response) -> CorrectedSentence:
    """Decode the answer of a request that must have been answered."""
    assert response.status is Status.OK, response
    return msgspec.msgpack.decode(response.payload, type=CorrectedSentence)


def fault(response: Response) -> tuple[Status, str]:
    """Return how a request failed."""
    assert isinstance(response.fault, Fault), response
    return response.status, response.fault.code


async def pong_where(channel: Channel, wanted: Callable[[Pong], bool], timeout: float = PATIENCE) -> Pong:
    """Ping until an answer is as `wanted`."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        pong = await channel.ping(timeout)
        if wanted(pong):
            return pong
        await asyncio.sleep(0.01)
    raise AssertionError(f"no such answer within {timeout:g} s; the last was {pong}")


async def all_run(channel: Channel, replies: asyncio.Queue[Response], requests: int) -> None:
    """Wait until that many requests run; fail as soon as one of them, whose ends come to `replies`, has ended."""

    def look(pong: Pong) -> bool:
        if not replies.empty():
            raise AssertionError(f"it was to run on, but has ended: {replies.get_nowait()}; the pod: {pong}")
        return pong.load.running == requests

    await pong_where(channel, look)


def is_ready(pong: Pong) -> bool:
    """Say whether the worker that answered takes requests."""
    return pong.state is EndpointState.READY
