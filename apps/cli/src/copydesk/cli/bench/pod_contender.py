"""Our own engine: a whole pod, asked over RPC as a gateway asks it."""

from __future__ import annotations

import asyncio
import os
import random
import re
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import msgspec

from copydesk.cli.bench.contender import Counts
from copydesk.cli.bench.engine_process import EngineProcess
from copydesk.cli.bench.http_client import HttpError, get
from copydesk.cli.bench.setting import OURS, Setting
from copydesk.cli.bench.workload import CONTEXT, Prompt
from copydesk.cli.fleet.ports import free_port
from copydesk.common.messages import EndpointState
from copydesk.common.rpc import Channel, Response, RpcError, Status, TcpAddress, UnixAddress
from copydesk.common.tasks import CorrectedSentence, CorrectSentence
from copydesk.loadtest import RequestFailedError

HOST = "127.0.0.1"
DEADLINE_MS = 600_000
_START_SECONDS = 600.0
_NEVER_MS = 86_400_000
DRAFT = "draft"
_DTYPES = {"int8": "int8", "bf16": "bfloat16", "float32": "float32"}

SETTINGS = (
    Setting(OURS, "int8", DRAFT),
    Setting(OURS, "int8"),
    Setting(OURS, "bf16", DRAFT),
    Setting(OURS, "bf16"),
)
_SAMPLE = re.compile(r"^(copydesk_inference_\w+?)(\{[^}]*\})? (\S+)$", re.MULTILINE)


class PodContender:
    """A pod with its defaults in all but arithmetic and drafting.

    It is frozen for minutes at a time: no process of it may take that for a hung one.
    """

    def __init__(self, setting: Setting, model_dir: Path, folder: Path, rng: random.Random) -> None:
        self.setting = setting
        self.version = version("copydesk-inference")
        self._temporary = folder / "tmp"
        self._temporary.mkdir(parents=True)
        self._port = free_port(HOST, rng)
        self._metrics_port = free_port(HOST, rng)
        argv = [sys.executable, "-m", "copydesk.inference"]
        environ = self._environ(model_dir)
        self.process = EngineProcess(setting.name, argv, environ, folder / "log")
        self._channel: Channel | None = None
        self._engine: Channel | None = None
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(CorrectedSentence).decode

    def _environ(self, model_dir: Path) -> Mapping[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("COPYDESK_")}
        kept = {name: os.environ[name] for name in ("COPYDESK_CACHE_DIR",) if name in os.environ}
        settings: dict[str, object] = {
            "MODEL_DIR": model_dir,
            "HOST": HOST,
            "PORT": self._port,
            "METRICS_PORT": self._metrics_port,
            "NATS_URL": f"nats://{HOST}:1",
            "POD": "bench",
            "CONTEXT": CONTEXT,
            "DTYPE": _DTYPES[self.setting.arithmetic],
            "DRAFT": "auto" if self.setting.drafting else "off",
            "ANSWER_TIMEOUT_MS": _NEVER_MS,
            "STEP_TIMEOUT_MS": _NEVER_MS,
            "LOG_LEVEL": "warning",
        }
        ours = {f"COPYDESK_INFERENCE_{name}": str(value) for name, value in settings.items()}
        return {**inherited, **kept, **ours, "TMPDIR": str(self._temporary)}

    async def wait_ready(self) -> None:
        """Connect until a worker says that the engine is ready."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _START_SECONDS
        while loop.time() < deadline:
            self.process.require_alive()
            if await self._is_ready():
                return
            await asyncio.sleep(0.2)
        raise self.process.failure(f"not ready within {_START_SECONDS:.0f} s")

    async def _is_ready(self) -> bool:
        try:
            if self._channel is None or self._channel.closed:
                self._channel = await Channel.open(TcpAddress(HOST, self._port), name="bench", timeout=5.0)
            pong = await self._channel.ping(5.0)
        except RpcError:
            return False
        return pong.state is EndpointState.READY

    async def answer(self, prompt: Prompt) -> str:
        """Correct the prompt's text; a prompt without one goes to the engine in tokens."""
        if not prompt.text:
            return await self._continue(prompt)
        if self._channel is None:
            raise RequestFailedError("not_connected", "the pod is not ready")
        payload = self._encode(CorrectSentence(prompt.text))
        response = _good(await self._channel.call(payload, deadline_ms=DEADLINE_MS))
        return self._decode(response.payload).text

    async def _continue(self, prompt: Prompt) -> str:
        from copydesk.inference.engine import GeneratedTokens, GenerateTokens

        if self._engine is None or self._engine.closed:
            socket = next(self._temporary.glob("copydesk-pod-*/engine*.sock"))
            self._engine = await Channel.open(UnixAddress(str(socket)), name="bench", timeout=5.0)
        request = GenerateTokens(list(prompt.tokens), prompt.max_tokens, list(prompt.stop_ids))
        response = _good(await self._engine.call(self._encode(request), deadline_ms=DEADLINE_MS))
        return str(msgspec.msgpack.decode(response.payload, type=GeneratedTokens).tokens)

    async def counts(self) -> Counts | None:
        """Read the pod's Prometheus metrics."""
        try:
            samples = parse_metrics((await get(HOST, self._metrics_port, "/metrics")).decode())
        except (HttpError, OSError):
            return None
        requests = samples.get("copydesk_inference_requests_total", 0.0)
        return Counts(requests, samples.get("copydesk_inference_passes_total", 0.0))

    async def close(self) -> None:
        """Close the connections to worker and engine."""
        for channel in (self._channel, self._engine):
            if channel is not None:
                await channel.close()


def parse_metrics(text: str) -> dict[str, float]:
    """Return the samples of a pod's metrics, summed over their labels."""
    samples: dict[str, float] = {}
    for name, _, value in _SAMPLE.findall(text):
        samples[name] = samples.get(name, 0.0) + float(value)
    return samples


def _good(response: Response) -> Response:
    if response.status is Status.OK:
        return response
    fault = response.fault
    raise RequestFailedError(fault.code if fault else response.status.name, fault.message if fault else "")
