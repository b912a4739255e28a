"""Requests a second of whole pods, with one to four workers: supervisor, RPC, tokens into text."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch

from copydesk.common.rpc import Channel, Response, RpcError, Status, TcpAddress
from copydesk.common.tasks import GenerateText, TokenPrompt
from copydesk.inference.gpu_check.models import CheckedModel
from copydesk.inference.gpu_check.requirements import POD, complaint, missing
from copydesk.inference.gpu_check.rows import Row

PART = "pod"
START = "bf16, synchronous, 1 worker"
_WORKLOAD = "50/50"
_CONNECTIONS = 8
_NOWHERE = "nats://127.0.0.1:1"


@dataclass(frozen=True, slots=True)
class Setting:
    """How a pod is run."""

    name: str
    workers: int
    fp8: bool = True
    asynchronous: bool = True


def _in_fp8(workers: int) -> Setting:
    return Setting(f"fp8, {workers} worker{'s' * (workers > 1)}", workers)


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is done; a pod has `start_seconds` to get ready."""

    slots: int
    tokens: int
    graphs: int
    seconds: float
    start_seconds: float
    settings: tuple[Setting, ...]


_ALL = (Setting(START, 1, fp8=False, asynchronous=False), *(_in_fp8(workers) for workers in (1, 4, 2, 3)))
FULL = Scale(slots=64, tokens=50, graphs=64, seconds=3.0, start_seconds=40.0, settings=_ALL)
QUICK = Scale(slots=4, tokens=8, graphs=0, seconds=0.1, start_seconds=90.0, settings=(_in_fp8(2),))


@dataclass(frozen=True, slots=True)
class _Pod:
    process: subprocess.Popen[bytes]
    port: int


class PodError(RuntimeError):
    """A pod that does not start, or does not answer."""


def measure_pods(model: CheckedModel, device: torch.device, scale: Scale, work: Path) -> Iterator[Row]:
    """A row for each setting, or one that says why there are none."""
    if lacking := missing(POD):
        yield Row(PART, "all", model.name, note="skipped: " + complaint(lacking, "a pod"))
        return
    for setting in scale.settings:
        try:
            with _running(model, device, scale, setting, work) as pod:
                rate = asyncio.run(_rate(pod, model, scale))
            yield Row(
                PART, setting.name, model.name, _WORKLOAD, value=round(rate, 1), unit="requests/s", ok=rate > 0
            )
        except Exception as error:
            note = f"{type(error).__name__}: {error}"[:300]
            yield Row(PART, setting.name, model.name, _WORKLOAD, ok=False, note=note)


@contextmanager
def _running(
    model: CheckedModel, device: torch.device, scale: Scale, setting: Setting, work: Path
) -> Iterator[_Pod]:
    """A pod; what it says goes to a file, whose end is told where it fails."""
    port = _free_port()
    log = work / "pod.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "copydesk.inference"],
            env=_environment(model, device, scale, setting, port),
            stdout=errors,
            stderr=errors,
        )
    try:
        yield _Pod(process, port)
    except PodError as error:
        raise PodError(f"{error}; its log ends: {log.read_text(errors='replace')[-200:]}") from error
    finally:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5.0)
        process.kill()
        process.wait()


def _environment(
    model: CheckedModel, device: torch.device, scale: Scale, setting: Setting, port: int
) -> Mapping[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("COPYDESK_")}
    chosen: dict[str, object] = {
        "MODEL_DIR": model.fp8 if setting.fp8 else model.bf16,
        "PORT": port,
        "NATS_URL": _NOWHERE,
        "DEVICE": str(device),
        "DTYPE": "auto" if setting.fp8 else "bfloat16",
        "SLOTS": scale.slots,
        "QUEUE": 16 * scale.slots,
        "CONTEXT": 128,
        "GRAPHS": scale.graphs,
        "DRAFT": "off",
        "ASYNCHRONOUS": setting.asynchronous,
        "WORKERS": setting.workers,
        "LOG_LEVEL": "warning",
    }
    return inherited | {f"COPYDESK_INFERENCE_{name}": str(value) for name, value in chosen.items()}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _rate(pod: _Pod, model: CheckedModel, scale: Scale) -> float:
    channels = await _connect(pod, time.monotonic() + scale.start_seconds)
    asked = [
        msgspec.msgpack.encode(
            GenerateText(TokenPrompt(asked.request.prompt), max_tokens=scale.tokens, temperature=0.0)
        )
        for asked in model.random_prompts(8 * scale.slots, scale.tokens)
    ]
    flood = _Flood(channels, asked, 2 * scale.slots)
    end = time.monotonic() + scale.start_seconds
    while not await flood.run(0.5):  # the engine is still loading
        if time.monotonic() > end or pod.process.poll() is not None:
            raise PodError(f"it answered nothing within {scale.start_seconds:g} s")
    rate = await flood.run(scale.seconds)
    for channel in channels:
        await channel.close()
    return rate


async def _connect(pod: _Pod, end: float) -> list[Channel]:
    channels: list[Channel] = []
    while len(channels) < _CONNECTIONS:
        try:
            channels.append(await Channel.open(TcpAddress("127.0.0.1", pod.port), name="check"))
        except RpcError as error:
            if time.monotonic() > end or pod.process.poll() is not None:
                raise PodError("it has not come to listen") from error
            await asyncio.sleep(0.1)
    return channels


class _Flood:
    """Keeps so many requests in flight until a moment, over several connections, and counts what is answered."""

    def __init__(self, channels: Sequence[Channel], asked: Sequence[bytes], in_flight: int) -> None:
        self._channels = itertools.cycle(channels)
        self._asked = itertools.cycle(asked)
        self._most = in_flight
        self._in_flight = 0
        self._answered = 0
        self._end = 0.0
        self._over = asyncio.Event()

    async def run(self, seconds: float) -> float:
        """Return the answers a second; raises `PodError` for an answer that is neither a text nor "not yet"."""
        self._answered, self._failure = 0, ""
        self._over.clear()
        began = time.monotonic()
        self._end = began + seconds
        for _ in range(self._most):
            self._send()
        await self._over.wait()
        if self._failure:
            raise PodError(self._failure)
        return self._answered / (time.monotonic() - began)

    def _send(self) -> None:
        self._in_flight += 1
        next(self._channels).send(next(self._asked), deadline_ms=60_000, on_reply=self._reply)

    def _reply(self, response: Response) -> None:
        self._in_flight -= 1
        if response.status is Status.OK:
            self._answered += 1
        elif response.status is not Status.UNAVAILABLE:
            self._failure = f"a request failed: {response.fault}"
        if time.monotonic() < self._end and not self._failure:
            if response.status is Status.OK:
                self._send()
            else:
                self._in_flight += 1
                asyncio.get_running_loop().call_later(0.05, self._again)
        elif self._in_flight == 0:
            self._over.set()

    def _again(self) -> None:
        self._in_flight -= 1
        self._send()
