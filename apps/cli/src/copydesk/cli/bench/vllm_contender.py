"""vLLM's OpenAI server on the CPU, asked for completions of token ids over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from copydesk.cli.bench.contender import Counts
from copydesk.cli.bench.engine_process import EngineProcess
from copydesk.cli.bench.http_client import HttpClient, HttpError
from copydesk.cli.bench.setting import VLLM, Setting
from copydesk.cli.bench.workload import CONTEXT, Prompt
from copydesk.cli.fleet.ports import free_port
from copydesk.loadtest import RequestFailedError

HOST = "127.0.0.1"
_START_SECONDS = 900.0
_SEQUENCES = 128
_CACHE_GIB = 1
_METRICS = {
    "vllm:request_success_total": "requests",
    "vllm:time_to_first_token_seconds_count": "passes",
    "vllm:inter_token_latency_seconds_count": "passes",
}
"""A pass is an interval between tokens, however many it brings; the first one has a metric of its own."""
_SAMPLE = re.compile(r"^([\w:]+)(?:\{[^}]*\})? (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class NGram:
    """Speculation by look-up: `tokens` guessed at once after a match of `shortest` to `longest` tokens."""

    tokens: int
    longest: int
    shortest: int

    @classmethod
    def parse(cls, text: str) -> NGram:
        """Read `TOKENS:LONGEST:SHORTEST`; raises ValueError."""
        tokens, longest, shortest = (int(part) for part in text.split(":"))
        if not (tokens >= 1 and longest >= shortest >= 1):
            raise ValueError(text)
        return cls(tokens, longest, shortest)

    @property
    def name(self) -> str:
        """How the setting is called."""
        return f"ngram-{self.tokens}-{self.longest}-{self.shortest}"

    def option(self) -> str:
        """The value of --speculative-config."""
        return json.dumps(
            {
                "method": "ngram",
                "num_speculative_tokens": self.tokens,
                "prompt_lookup_max": self.longest,
                "prompt_lookup_min": self.shortest,
            }
        )


def settings(ngrams: tuple[NGram, ...]) -> tuple[Setting, ...]:
    """Return vLLM's settings: both arithmetics, token by token and with each kind of look-up."""
    drafting = [
        ("", ""),
        *((ngram.name, shlex.join(["--speculative-config", ngram.option()])) for ngram in ngrams),
    ]
    return tuple(Setting(VLLM, arithmetic, *how) for arithmetic in ("bf16", "int8") for how in drafting)


class VllmContender:
    """The server with the settings that suit this CPU and this workload best.

    All cores for the model (by default it keeps one idle), no prefix cache, since no two prompts share one of use,
    and asynchronous scheduling, which is vLLM's default wherever it can.
    """

    def __init__(self, setting: Setting, python: Path, model_dir: Path, folder: Path, rng: random.Random) -> None:
        self.setting = setting
        self.version = ""
        self._port = free_port(HOST, rng)
        folder.mkdir(parents=True)
        argv = [str(python), "-m", "vllm.entrypoints.openai.api_server", *self._arguments(model_dir)]
        self.process = EngineProcess(setting.name, argv, environ(python), folder / "log")
        self._client = HttpClient(HOST, self._port)

    def _arguments(self, model_dir: Path) -> list[str]:
        fixed = {
            "--model": model_dir,
            "--served-model-name": "model",
            "--host": HOST,
            "--port": self._port,
            "--dtype": "bfloat16",
            "--max-model-len": CONTEXT,
            "--max-num-seqs": _SEQUENCES,
        }
        arguments = [str(part) for option in fixed.items() for part in option]
        arguments += ["--no-enable-prefix-caching", "--disable-uvicorn-access-log"]
        return [*arguments, *shlex.split(self.setting.options)]

    async def wait_ready(self) -> None:
        """Ask for its version until it answers."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _START_SECONDS
        while loop.time() < deadline:
            self.process.require_alive()
            try:
                self.version = str(json.loads(await self._client.get("/version"))["version"])
            except (HttpError, OSError):
                await asyncio.sleep(0.5)
                continue
            return
        raise self.process.failure(f"not ready within {_START_SECONDS:.0f} s")

    async def answer(self, prompt: Prompt) -> str:
        """Complete the prompt; returns the text that comes back."""
        body = {
            "model": "model",
            "prompt": prompt.tokens,
            "max_tokens": prompt.max_tokens,
            "temperature": 0,
            "stop_token_ids": prompt.stop_ids,
            "ignore_eos": not prompt.stop_ids,
        }
        try:
            answer = json.loads(await self._client.post("/v1/completions", msgspec.json.encode(body)))
        except HttpError as error:
            raise RequestFailedError(f"http_{error.status}", error.body) from error
        return str(answer["choices"][0]["text"])

    async def counts(self) -> Counts | None:
        """Read its Prometheus metrics."""
        try:
            return parse_counts((await self._client.get("/metrics")).decode())
        except (HttpError, OSError):
            return None

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


def parse_counts(text: str) -> Counts:
    """Return requests and passes from vLLM's metrics."""
    found = dict.fromkeys(_METRICS.values(), 0.0)
    for name, value in _SAMPLE.findall(text):
        if name in _METRICS:
            found[_METRICS[name]] += float(value)
    return Counts(found["requests"], found["passes"])


def environ(python: Path) -> Mapping[str, str]:
    """Return the environment that vLLM's CPU build wants: every core, and its own OpenMP and allocator."""
    cores = sorted(os.sched_getaffinity(0))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("COPYDESK_", "VLLM_"))}
    preload = [
        str(path) for path in (python.parent.parent / "lib" / "libiomp5.so", tcmalloc()) if path and path.exists()
    ]
    return kept | {
        "LD_PRELOAD": ":".join(preload),
        "OMP_NUM_THREADS": str(len(cores)),
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cores)),
        "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
        "VLLM_CPU_KVCACHE_SPACE": str(_CACHE_GIB),
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        # So that the compile cache beside the environment is found again at the next start.
        "VLLM_CACHE_ROOT": str(python.parent.parent / "cache"),
    }


def tcmalloc() -> Path | None:
    """Return the allocator that vLLM recommends, of Debian's libtcmalloc-minimal4, if it is installed."""
    return next(iter(sorted(Path("/usr/lib").glob("*/libtcmalloc_minimal.so.4"))), None)
