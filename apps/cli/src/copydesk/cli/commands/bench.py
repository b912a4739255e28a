"""`copydesk bench engine`: start the engines, let them take turns, show what came of it."""

from __future__ import annotations

import asyncio
import random
import shlex
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from rich.console import Console
from rich.markup import escape

from copydesk.cli import terminal
from copydesk.cli.bench.catalogue import Starter, all_settings
from copydesk.cli.bench.contest import Contest, Plan
from copydesk.cli.bench.machine import read_machine
from copydesk.cli.bench.render import render
from copydesk.cli.bench.result import Facts, Result, Skipped, assemble
from copydesk.cli.bench.rival_models import RivalModels
from copydesk.cli.bench.rivals import RECIPES, Environments, SetUpError, rivals_directory
from copydesk.cli.bench.setting import OURS, Setting, UnknownEngineError, select
from copydesk.cli.bench.vllm_contender import NGram, tcmalloc
from copydesk.cli.bench.workload import WorkloadError, correction_prompts, random_prompts, read_texts
from copydesk.cli.commands.model import PreparationError, prepare_shown

_SEED = 20_261_130
_BAD_INPUT = 2
_ENGINE_FAILED = 1


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """What was asked for on the command line."""

    engines: tuple[str, ...]
    texts: Path | None
    model: Path | None
    count: int
    alone: int
    rounds: int
    users: tuple[int, ...]
    random: bool
    ngrams: tuple[NGram, ...]
    rivals_dir: Path | None
    as_json: bool


def bench_engine(request: BenchRequest) -> int:
    """Measure and show; returns the exit code."""
    began, clock = datetime.now(UTC), time.monotonic()
    console = terminal.stderr()
    environments = Environments(rivals_directory(request.rivals_dir))
    try:
        settings = select(all_settings(request.ngrams), request.engines)
        skipped = find_missing(settings, environments)
        present = [s for s in settings if s.engine not in {one.engine for one in skipped}]
        _tell_skipped(console, skipped, present)
        model_dir, digest = _model(request.model)
        plan = _plan(request, model_dir)
    except (UnknownEngineError, WorkloadError, PreparationError) as error:
        terminal.say_error(str(error))
        return _BAD_INPUT
    if not present:
        terminal.say_error("none of the engines is installed", "copydesk bench engine --set-up")
        return _BAD_INPUT
    with tempfile.TemporaryDirectory(prefix="copydesk-bench-", ignore_cleanup_errors=True) as folder:
        models = RivalModels(model_dir, digest, environments.root / "models")
        starter = Starter(models, environments, Path(folder), random.Random())
        outcome = asyncio.run(Contest(starter, plan, lambda line: _say(console, line)).run(present))
    facts = Facts(
        skipped=skipped,
        left_out=tuple(outcome.left_out),
        versions=outcome.versions,
        resident_mb=outcome.resident_mb,
        machine=read_machine(),
        model_digest=digest,
        command=_command(),
        started_at=began.strftime("%Y-%m-%d %H:%M UTC"),
        duration_s=round(time.monotonic() - clock, 1),
    )
    _show(assemble(present, outcome.measurements, facts), as_json=request.as_json)
    return _ENGINE_FAILED if outcome.left_out else 0


def show_saved(path: Path) -> int:
    """Render a run that was saved with --json; returns the exit code."""
    try:
        result = msgspec.json.decode(path.read_bytes(), type=Result)
    except OSError as error:
        terminal.say_error(f"{path}: {error.strerror}")
        return _BAD_INPUT
    except (msgspec.DecodeError, RecursionError) as error:
        terminal.say_error(f"{path}: not what copydesk bench engine --json prints: {error}")
        return _BAD_INPUT
    _show(result, as_json=False)
    return 0


def set_up(engines: Sequence[str], rivals_dir: Path | None) -> int:
    """Install the other engines, or those named, each into an environment of its own; returns the exit code."""
    console = terminal.stderr()
    environments = Environments(rivals_directory(rivals_dir))
    try:
        chosen = dict.fromkeys(s.engine for s in select(all_settings(), engines) if s.engine != OURS)
        for engine in chosen:
            environments.make(engine, lambda line: _say(console, line))
    except (UnknownEngineError, SetUpError, OSError) as error:
        terminal.say_error(str(error))
        return _BAD_INPUT if isinstance(error, UnknownEngineError) else _ENGINE_FAILED
    if "vllm" in chosen and tcmalloc() is None:
        _say(console, "vllm is faster with tcmalloc; on Debian: apt-get install libtcmalloc-minimal4")
    return 0


def find_missing(settings: Sequence[Setting], environments: Environments) -> tuple[Skipped, ...]:
    """Return the engines among `settings` that are not installed, and how to install each."""
    engines = dict.fromkeys(s.engine for s in settings if s.engine in RECIPES)
    reasons = {engine: environments.missing(engine) for engine in engines}
    return tuple(
        Skipped(engine=engine, reason=reason, command=f"copydesk bench engine --set-up --engines {engine}")
        for engine, reason in reasons.items()
        if reason
    )


def _tell_skipped(console: Console, skipped: Sequence[Skipped], present: Sequence[Setting]) -> None:
    for one in skipped:
        _say(console, f"{one.engine} is skipped: {one.reason}; install it: {one.command}")
    if any(setting.engine == "vllm" for setting in present) and tcmalloc() is None:
        _say(
            console,
            "vllm runs without tcmalloc and is slower for it; on Debian: apt-get install libtcmalloc-minimal4",
        )


def _model(model: Path | None) -> tuple[Path, str]:
    from copydesk.inference.checkpoint import read_digest

    if model is None:
        prepared = prepare_shown()
        return prepared.directory, prepared.digest
    if not (model / "config.json").is_file():
        raise WorkloadError(str(model), "no model directory: config.json is missing")
    return model.resolve(), read_digest(model)


def _plan(request: BenchRequest, model_dir: Path) -> Plan:
    prompts = correction_prompts(read_texts(request.texts, request.count), model_dir)
    vocabulary = int(msgspec.json.decode((model_dir / "config.json").read_bytes())["vocab_size"])
    wanted = 2 * max(request.users) if request.random else 0
    return Plan(
        prompts=prompts,
        random=random_prompts(wanted, vocabulary, random.Random(_SEED)),
        alone=min(request.alone, request.count),
        rounds=request.rounds,
        users=request.users,
    )


def _show(result: Result, *, as_json: bool) -> None:
    line = msgspec.json.encode(result) if as_json else render(result).encode()
    terminal.write_line(line)


def _say(console: Console, line: str) -> None:
    console.print(escape(line), soft_wrap=True)


def _command() -> str:
    return shlex.join(["copydesk", *sys.argv[1:]])
