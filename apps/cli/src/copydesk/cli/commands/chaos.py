"""`copydesk chaos`: faults strike a fleet under load; what came of it, against the bars."""

from __future__ import annotations

import asyncio
import os
import random
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx
import msgspec
from rich.markup import escape

from copydesk.chaos.campaign import NotWellError, Orders, Run
from copydesk.chaos.kinds import Kind
from copydesk.chaos.page import html
from copydesk.chaos.report import ChaosReport, rows
from copydesk.chaos.schedule import plan_strikes
from copydesk.chaos.strikes import Arena
from copydesk.chaos.verdict import Bars
from copydesk.cli import terminal
from copydesk.cli.api import KEY_VARIABLE, Api, ApiError, FleetUnreachableError, advice
from copydesk.cli.bench.workload import WorkloadError, read_texts
from copydesk.cli.chaos.ground import Ground, own_fleet, possible, running_fleet
from copydesk.cli.commands.model import PreparationError
from copydesk.cli.commands.status import find_fleet
from copydesk.cli.commands.up import CannotStartError
from copydesk.cli.fleet.session import run_fleet
from copydesk.cli.fleet.state import FleetState, StateLock, read_state
from copydesk.cli.output_file import OutputError, require_writable
from copydesk.common.errors import CopydeskError
from copydesk.common.telemetry import configure_logging
from copydesk.loadtest.generators import GeneratorError

_MISSED = 1
_BAD_INPUT = 2
_INTERRUPTED = 130
MOST_TEXTS = 48
"""Each is asked for before anything is broken; more would only make that longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosRequest:
    """What was asked for on the command line; with neither a `url` nor a `state_dir`, a fleet is started."""

    seconds: float
    seed: int
    rate: float
    url: str | None
    state_dir: Path | None
    kinds: tuple[Kind, ...]
    pods: int
    model: Path | None
    deadline_ms: float
    slo_ms: float
    availability: float
    texts: Path | None
    page: Path | None
    as_json: bool

    @property
    def on_its_own(self) -> bool:
        """Whether a fleet is to be started for it."""
        return self.url is None and self.state_dir is None


class NotHereError(CopydeskError):
    """Faults were asked for, of a fleet at `url` that `copydesk up` did not start on this machine."""

    def __init__(self, url: str) -> None:
        self.url = url
        super().__init__(f"--faults is for a fleet that copydesk up started on this machine; {url} is none")


class NotStartedError(CopydeskError):
    """No fleet was started with this `state_dir`, or it has ended."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        super().__init__(f"no fleet runs that was started with --state-dir {state_dir}")


def chaos(request: ChaosRequest) -> int:
    """Do it and show; returns the exit code."""
    configure_logging("chaos", level="error")
    try:
        require_writable(request.page)
        texts = chosen(read_texts(request.texts, None), request.seed)
        report = _on_own_fleet(request, texts) if request.on_its_own else _on_running_fleet(request, texts)
    except (WorkloadError, OutputError, NotHereError, NotStartedError) as error:
        terminal.say_error(str(error))
        return _BAD_INPUT
    except (CannotStartError, PreparationError) as error:
        terminal.say_error(str(error), error.hint)
        return _BAD_INPUT
    except (ApiError, FleetUnreachableError) as error:
        terminal.say_error(str(error), advice(error))
        return _BAD_INPUT
    except (httpx.HTTPError, msgspec.DecodeError) as error:
        terminal.say_error(f"the fleet answers no more ({error})")
        return _MISSED
    except (NotWellError, GeneratorError) as error:
        terminal.say_error(str(error))
        return _MISSED
    if report is None:
        terminal.say_error("the fleet ended before there was anything to report")
        return _INTERRUPTED
    return _show(report, request)


def chosen(texts: Sequence[str], seed: int) -> list[str]:
    """Choose the sentences of a run."""
    return random.Random(f"{seed} texts").sample(list(texts), min(MOST_TEXTS, len(texts)))


def _on_running_fleet(request: ChaosRequest, texts: list[str]) -> ChaosReport:
    url, state = _fleet_meant(request)
    api = Api(url)
    api.fleet()
    api.close()
    arena = None if state is None else running_fleet(state)
    orders = _orders(request, url, texts, arena, state.pods if state else (), alike=False)
    return asyncio.run(_interruptible(orders))


def _fleet_meant(request: ChaosRequest) -> tuple[str, FleetState | None]:
    if request.state_dir is not None:
        state = read_state(request.state_dir)
        if state is None:
            raise NotStartedError(request.state_dir)
        return state.url, state
    url, state = find_fleet(request.url)
    if request.kinds and state is None:
        raise NotHereError(url)
    return url, state


def _on_own_fleet(request: ChaosRequest, texts: list[str]) -> ChaosReport | None:
    with tempfile.TemporaryDirectory(prefix="copydesk-chaos-") as folder, StateLock(Path(folder)) as lock:
        return asyncio.run(_inside(request, texts, own_fleet(lock.state_dir, request.pods, request.model)))


async def _inside(request: ChaosRequest, texts: list[str], ground: Ground) -> ChaosReport | None:
    found: list[ChaosReport] = []

    async def work(url: str) -> None:
        orders = _orders(request, url, texts, ground.arena, ground.options.pod_names, alike=True)
        found.append(await _interruptible(orders))

    async with ground.open():
        outcome = await run_fleet(ground.options, ground.heard, work, serve=False)
    if outcome.error is not None and not found:
        raise outcome.error
    return found[0] if found else None


def _orders(
    request: ChaosRequest, url: str, texts: list[str], arena: Arena | None, pods: Sequence[str], *, alike: bool
) -> Orders:
    key = os.environ.get(KEY_VARIABLE, "")
    kinds = possible(request.kinds, arena) if arena else ()
    strikes = plan_strikes(request.seed, request.seconds, pods, kinds)
    load = f"{request.rate:g} requests/s to {url}"
    _say(f"{request.seconds:.0f} s of {load}, {len(strikes)} faults, seed {request.seed}")
    return Orders(
        url=url.rstrip("/"),
        texts=texts,
        rate=request.rate,
        seconds=request.seconds,
        deadline_ms=request.deadline_ms,
        slo_ms=request.slo_ms,
        seed=request.seed,
        headers={"Authorization": f"Bearer {key}"} if key else {},
        alike=alike,
        bars=Bars(request.availability),
        strikes=strikes,
        arena=arena,
    )


async def _interruptible(orders: Orders) -> ChaosReport:
    run = Run(orders, _say)
    with _interrupts(run):
        return await run.report()


@contextmanager
def _interrupts(run: Run) -> Iterator[None]:
    """Have Ctrl-C or SIGTERM end the run with a report, and the next one end everything at once.

    They stay so afterwards: a fleet that stops is to be hurried in the same way.
    """
    loop = asyncio.get_running_loop()

    def take() -> None:
        if run.interrupted:
            raise KeyboardInterrupt
        run.interrupt()
        _say("ending the run, which may take some seconds; once more to stop at once")

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, take)
    yield


def _show(report: ChaosReport, request: ChaosRequest) -> int:
    if report.interrupted and not report.outcome.offered:
        terminal.say_error("interrupted before the first request: there is nothing to report")
        return _INTERRUPTED
    # The page first: standard output that cannot be written ends the command.
    drawn = request.page is None or _draw(report, request.page)
    terminal.write_line(msgspec.json.encode(report) if request.as_json else _table(report).encode())
    if report.interrupted:
        terminal.say_error(f"interrupted; the report is of the first {report.seconds:.1f} s")
        return _INTERRUPTED
    return 0 if report.holds and drawn else _MISSED


def _draw(report: ChaosReport, page: Path) -> bool:
    """Write the page; returns whether that could be done."""
    made = datetime.fromtimestamp(time.time(), UTC).strftime("%Y-%m-%d %H:%M UTC")
    facts = [("made", made), ("fleet", report.url), ("command", shlex.join(["copydesk", *sys.argv[1:]]))]
    try:
        page.write_text(html(report, title="Copydesk under faults", facts=facts), encoding="utf-8")
    except OSError as error:
        terminal.say_error(f"{page}: {error.strerror}")
        return False
    return True


def _table(report: ChaosReport) -> str:
    shown = rows(report)
    width = max(len(name) for name, _ in shown)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in shown)


def _say(line: str) -> None:
    terminal.stderr().print(escape(line), soft_wrap=True)
