"""What an engine core sustains with a model that costs nothing: `python -m bench.scheduling [--json]`.

The null device takes a set time a step and answers with noise, so that what is left is scheduling, step inputs and
RPC. Each request has 50 tokens in and 50 out, nothing is drafted, and twice as many are in flight as there are
slots. The engine process is asked at its own socket, and through pods with 1 to 4 workers, which also turn tokens
into text. Beside the rate stands what it cost: CPU time of the engine process and of the workers, and how many
tokens a step had, where a pod counts its steps. Settings alternate round by round. The client shares the cores
with what it measures.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from subprocess import DEVNULL, Popen

import msgspec

from bench.process_costs import Spent, spent
from copydesk.common.rpc import Address, Channel, Response, RpcError, Status, TcpAddress, UnixAddress
from copydesk.common.tasks import GeneratedText, GenerateText, TokenPrompt
from copydesk.inference.checkpoint import prepare_default_model
from copydesk.inference.engine import GeneratedTokens, GenerateTokens
from tests.fixtures.nats import free_port
from tests.integration.pod.running_pod import environment

TOKENS, SLOTS, CONNECTIONS = 50, 64, 4
START_SECONDS = 60.0
_ENGINE = """
import sys
from copydesk.common.process import run
from copydesk.inference.pod.engine_process import serve_engine
from copydesk.inference.settings import InferenceSettings
sys.exit(run(serve_engine(InferenceSettings(), sys.argv[1])))
"""


@dataclass(frozen=True)
class Setting:
    """What is measured; no `workers` means the engine process by itself."""

    core: str
    asynchronous: bool
    step_ms: float
    workers: int = 0


def settings(step_ms: Sequence[float], workers: Sequence[int]) -> list[Setting]:
    """Both cores, asynchronous or not: alone, and with the first cost of a step behind workers."""
    asked = [(cost, 0) for cost in step_ms] + [(step_ms[0], count) for count in workers]
    return [
        Setting(core, asynchronous, cost, count)
        for (cost, count), core, asynchronous in itertools.product(asked, ("compiled", "python"), (True, False))
    ]


@dataclass(frozen=True)
class Found:
    """One turn of a setting: CPU time a request in microseconds; tokens a step, 0 where steps are not counted."""

    requests_per_second: float
    engine_us: float
    workers_us: float
    tokens_per_step: float


@dataclass(frozen=True)
class Started:
    """What runs, and where it answers."""

    address: Address
    process: int
    metrics_port: int | None

    def spent(self) -> Spent:
        """What it has cost so far."""
        return spent(self.process, self.metrics_port)


@contextmanager
def started(setting: Setting, directory: Path) -> Iterator[Started]:
    """Run an engine process or a pod."""
    socket = str(directory / "engine.sock")
    variables = environment(
        prepare_default_model(),
        {
            "DEVICE": f"null:{setting.step_ms:g}",
            "CORE": setting.core,
            "ASYNCHRONOUS": setting.asynchronous,
            "DTYPE": "auto",
            "SLOTS": SLOTS,
            "QUEUE": 4096,
            "DRAFT": "off",
            "WORKERS": max(1, setting.workers),
            "PORT": free_port(),
            "METRICS_PORT": free_port(),
        },
    )
    alone = [sys.executable, "-c", _ENGINE, socket]
    command = [sys.executable, "-m", "copydesk.inference"] if setting.workers else alone
    process = Popen(command, env=variables, stdout=DEVNULL, stderr=DEVNULL)
    try:
        port = int(variables["COPYDESK_INFERENCE_PORT"])
        metrics_port = int(variables["COPYDESK_INFERENCE_METRICS_PORT"])
        if setting.workers:
            yield Started(TcpAddress("127.0.0.1", port), process.pid, metrics_port)
        else:
            yield Started(UnixAddress(socket), process.pid, None)
    finally:
        process.terminate()
        process.wait()


async def open_channels(address: Address) -> list[Channel]:
    """Connect, as soon as there is somebody to connect to."""
    deadline = time.monotonic() + START_SECONDS
    channels: list[Channel] = []
    while len(channels) < CONNECTIONS:
        try:
            channels.append(await Channel.open(address, name="bench"))
        except RpcError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.05)
    return channels


def payloads(setting: Setting) -> list[bytes]:
    """Random prompts, as the engine or a worker wants them."""
    rng = random.Random(0)
    prompts = [[rng.randrange(3, 49_000) for _ in range(TOKENS)] for _ in range(SLOTS)]
    if setting.workers:
        tasks = [GenerateText(TokenPrompt(prompt), max_tokens=TOKENS, temperature=0.0) for prompt in prompts]
        return [msgspec.msgpack.encode(task) for task in tasks]
    return [msgspec.msgpack.encode(GenerateTokens(prompt, TOKENS, [])) for prompt in prompts]


class Flood:
    """Keeps a number of requests in flight until a moment, and counts what is answered."""

    def __init__(self, channels: Sequence[Channel], requests: Sequence[bytes]) -> None:
        self._channels = itertools.cycle(channels)
        self._requests = itertools.cycle(requests)
        self._in_flight = 0
        self._until = 0.0
        self.answered = 0
        self.latest: Response | None = None

    async def run(self, seconds: float) -> float:
        """Return the answers a second."""
        self.answered, self._over = 0, asyncio.Event()
        began = time.monotonic()
        self._until = began + seconds
        for _ in range(2 * SLOTS):
            self._send()
        await self._over.wait()
        return self.answered / (time.monotonic() - began)

    def _send(self) -> None:
        self._in_flight += 1
        next(self._channels).send(next(self._requests), deadline_ms=60_000, on_reply=self._reply)

    def _reply(self, response: Response) -> None:
        self._in_flight -= 1
        if response.status is Status.OK:
            self.answered += 1
            self.latest = response
        elif response.status is not Status.UNAVAILABLE:  # an engine that is still loading
            raise SystemExit(f"a request failed: {response.fault}")
        if time.monotonic() < self._until:
            self._send()
        elif self._in_flight == 0:
            self._over.set()


async def turn(setting: Setting, running: Started, seconds: float) -> Found:
    """Warm up until answers come, then measure."""
    channels = await open_channels(running.address)
    flood = Flood(channels, payloads(setting))
    while not await flood.run(0.5):  # still loading
        pass
    before = running.spent()
    rate = await flood.run(seconds)
    cost = running.spent() - before
    require_whole(setting, flood.latest)
    for channel in channels:
        await channel.close()
    made = flood.answered * TOKENS
    return Found(
        requests_per_second=rate,
        engine_us=cost.engine / flood.answered * 1e6,
        workers_us=cost.workers / flood.answered * 1e6,
        tokens_per_step=made / cost.steps if cost.steps else 0.0,
    )


def require_whole(setting: Setting, answer: Response | None) -> None:
    """Make sure that what was counted is what was asked for."""
    kind: type[GeneratedText | GeneratedTokens] = GeneratedText if setting.workers else GeneratedTokens
    made = msgspec.msgpack.decode(answer.payload, type=kind) if answer else None
    if made is None or (made.prompt_tokens, made.completion_tokens) != (TOKENS, TOKENS):
        raise SystemExit(f"asked for {TOKENS} tokens after {TOKENS}, got {made}")


def measure(chosen: Sequence[Setting], rounds: int, seconds: float) -> dict[Setting, list[Found]]:
    """Return what was found by setting, one a round."""
    found: dict[Setting, list[Found]] = {setting: [] for setting in chosen}
    for _ in range(rounds):
        for setting in chosen:
            with tempfile.TemporaryDirectory() as directory, started(setting, Path(directory)) as running:
                found[setting].append(asyncio.run(turn(setting, running, seconds)))
            print(f"{setting}: {found[setting][-1]}", file=sys.stderr, flush=True)
    return found


def render(found: dict[Setting, list[Found]]) -> str:
    """The medians as a table in Markdown."""
    columns = [
        "core",
        "asynchronous",
        "step ms",
        "asked",
        "requests/s",
        "engine us",
        "workers us",
        "tokens a step",
    ]
    rows = [columns, ["---"] * len(columns)]
    for setting, turns in found.items():
        asked = f"{setting.workers} worker{'s' * (setting.workers > 1)}" if setting.workers else "the engine"
        mode = "yes" if setting.asynchronous else "no"
        rate, engine, workers, tokens = (
            statistics.median(column) for column in zip(*map(astuple, turns), strict=True)
        )
        figures = [f"{rate:,.0f}", f"{engine:.0f}", f"{workers:.0f}", f"{tokens:.1f}"]
        if not setting.workers:
            figures[2:] = "", ""
        rows.append([setting.core, mode, f"{setting.step_ms:g}", asked, *figures])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    """Measure, and print a table or JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.scheduling", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="rounds of all settings (default: 3)")
    parser.add_argument("--seconds", type=float, default=3.0, help="seconds of each turn (default: 3)")
    parser.add_argument(
        "--step-ms", type=float, nargs="+", default=[0.0, 5.0], help="costs of a step (default: 0 5)"
    )
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2, 3, 4], help="default: 1 2 3 4")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    found = measure(settings(options.step_ms, options.workers), options.rounds, options.seconds)
    table = [asdict(setting) | {"turns": [asdict(each) for each in turns]} for setting, turns in found.items()]
    print(json.dumps({"settings": table}) if options.json else render(found))


if __name__ == "__main__":
    main()
