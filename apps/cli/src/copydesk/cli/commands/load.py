"""`copydesk bench load`: send a planned load to a fleet and report what it did with it."""

from __future__ import annotations

import asyncio
import os
import random
import shlex
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from rich.markup import escape

from copydesk.cli import terminal
from copydesk.cli.api import KEY_VARIABLE, Api, ApiError, FleetUnreachableError, advice
from copydesk.cli.bench.workload import WorkloadError, read_texts
from copydesk.cli.capacity.subject import NotServedError
from copydesk.cli.commands.status import find_fleet
from copydesk.cli.output_file import OutputError, require_writable
from copydesk.common.errors import CopydeskError
from copydesk.loadtest.client import Target, correction_bodies
from copydesk.loadtest.generators import GeneratorError, Generators
from copydesk.loadtest.load_report import LoadReport, report_load
from copydesk.loadtest.page import html, rows
from copydesk.loadtest.plan import Plan, PlanError
from copydesk.loadtest.tally import Tally, Watch
from copydesk.loadtest.trace import TraceError, read_trace

_BAD_INPUT = 2
_FAILED = 1
_INTERRUPTED = 130
TELL_S = 10.0
"""How often it is told how a load goes, in seconds."""
LATE_MS = 5.0
"""Lateness of the generator, P99, from which on the report says more of it than of the fleet."""


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """What was asked for on the command line. `peak` is the last rate of a ramp, or that of a burst."""

    url: str | None
    model: str | None
    shape: str
    rate: float
    peak: float | None
    seconds: float
    burst_at: float | None
    burst_seconds: float | None
    trace: Path | None
    speed: float
    slo_ms: float
    texts: Path | None
    processes: int
    grace: float
    seed: int
    page: Path | None
    as_json: bool


class ShapeError(CopydeskError):
    """Options that do not go together."""


def bench_load(request: LoadRequest) -> int:
    """Send and show; returns the exit code."""
    url, _ = find_fleet(request.url)
    try:
        require_writable(request.page)
        plan, seconds, shape = planned(request)
        target = _target(request, url)
        _say(f"{len(plan.offsets)} requests in {seconds:.1f} s to {url}: {shape}")
        report, partial = asyncio.run(_send(request, plan, seconds, shape, target))
    except KeyboardInterrupt:
        terminal.say_error("interrupted")
        return _INTERRUPTED
    except (ApiError, FleetUnreachableError) as error:
        terminal.say_error(str(error), advice(error))
        return _BAD_INPUT
    except (WorkloadError, PlanError, TraceError, ShapeError, OutputError, NotServedError) as error:
        terminal.say_error(str(error))
        return _BAD_INPUT
    except GeneratorError as error:
        terminal.say_error(str(error))
        return _FAILED
    if late := _lateness(report):
        _say(late)
    if partial:
        terminal.say_error(f"interrupted; the report is of the first {report.seconds:.1f} s")
    return _show(report, request, url) or (_INTERRUPTED if partial else 0)


def planned(request: LoadRequest) -> tuple[Plan, float, str]:
    """Return the plan, how many seconds of load it makes, and what it is called.

    Raises:
        ShapeError: An option is missing for the shape, or is for another one.
        PlanError: A figure cannot be.
        TraceError: The trace cannot be used.
    """
    rng, rate, seconds = random.Random(request.seed), request.rate, request.seconds
    if (request.trace is not None) != (request.shape == "trace"):
        raise ShapeError("--trace FILE and --shape trace go together")
    if (request.peak is not None) != (request.shape in ("ramp", "burst")):
        raise ShapeError("--to is for the shapes ramp and burst, which need it")
    if request.trace is not None:
        plan = Plan.of_times(read_trace(request.trace), speed=request.speed)
        return plan, max(plan.offsets[-1], 1.0), f"trace {request.trace.name}, {request.speed:g} times as fast"
    if request.peak is None:
        shaped = Plan.constant if request.shape == "constant" else _poisson(rng)
        return shaped(rate, seconds), seconds, f"{request.shape} {rate:g}/s"
    if request.shape == "ramp":
        return Plan.ramp(rate, request.peak, seconds, rng), seconds, f"ramp {rate:g} to {request.peak:g}/s"
    at = seconds / 3.0 if request.burst_at is None else request.burst_at
    length = seconds / 6.0 if request.burst_seconds is None else request.burst_seconds
    plan = Plan.burst(rate, request.peak, seconds, at=at, length=length, rng=rng)
    return plan, seconds, f"burst {rate:g}/s, {request.peak:g}/s from second {at:.4g} for {length:.4g} s"


def _poisson(rng: random.Random) -> Callable[[float, float], Plan]:
    return lambda rate, seconds: Plan.poisson(rate, seconds, rng)


def _target(request: LoadRequest, url: str) -> Target:
    """Make sure that somebody is there who serves the model, and say what to send.

    Raises:
        ApiError: The fleet refuses, for one because the key is wrong.
        FleetUnreachableError: Nobody is there.
        NotServedError: It serves another model.
        WorkloadError: The sentences cannot be read.
    """
    texts = read_texts(request.texts, None)
    api = Api(url)
    try:
        served = api.fleet().model
    finally:
        api.close()
    if request.model is not None and request.model != served:
        raise NotServedError(f"{request.model!r} is not served at {url}; {served!r} is", _BAD_INPUT)
    key = os.environ.get(KEY_VARIABLE, "")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return Target(url=url, bodies=correction_bodies(texts, request.model or ""), headers=headers)


async def _send(
    request: LoadRequest, plan: Plan, seconds: float, shape: str, target: Target
) -> tuple[LoadReport, bool]:
    """Send the load; return the report, and whether it is of a part, because of Ctrl-C.

    Raises:
        KeyboardInterrupt: Nothing is known yet, or it is pressed again.
    """
    watch = Watch(begin=0.0, end=seconds + 1.0, slo_s=request.slo_ms / 1000.0, late_s=LATE_MS / 1000.0)
    progress = _Progress(request.slo_ms)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, progress.interrupt)
    try:
        async with Generators(target) as generators:
            samples, until = await generators.fly_while(
                plan.offsets, watch, progress.going_on, processes=request.processes, grace=request.grace
            )
    finally:
        loop.remove_signal_handler(signal.SIGINT)
    if until is not None:
        samples, seconds = [sample for sample in samples if sample.planned < until], min(seconds, until)
        if not samples:
            raise KeyboardInterrupt
    report = report_load(samples, shape=shape, seconds=seconds, slo_ms=request.slo_ms, processes=request.processes)
    return report, until is not None


class _Progress:
    """Tells every few seconds how a load goes, and ends it after Ctrl-C, with what is known by then."""

    def __init__(self, slo_ms: float) -> None:
        self._slo_ms = slo_ms
        self._began = self._told = time.monotonic()
        self._interrupted = False

    def interrupt(self) -> None:
        """End the load at the next opportunity; at once when it is asked for again."""
        if self._interrupted:
            raise KeyboardInterrupt
        self._interrupted = True

    def going_on(self, tally: Tally) -> bool:
        """Take in what is known of the load; returns whether it goes on."""
        now = time.monotonic()
        if now - self._told >= TELL_S:
            self._told = now
            _say(f"{now - self._began:.0f} s: {tally.missed} of {tally.due} not answered in {self._slo_ms:g} ms")
        return not self._interrupted


def _show(report: LoadReport, request: LoadRequest, url: str) -> int:
    terminal.write_line(msgspec.json.encode(report) if request.as_json else _table(report).encode())
    if request.page is not None:
        made = datetime.fromtimestamp(time.time(), UTC).strftime("%Y-%m-%d %H:%M UTC")
        facts = [("made", made), ("fleet", url), ("command", shlex.join(["copydesk", *sys.argv[1:]]))]
        facts += [("note", late)] if (late := _lateness(report)) else []
        try:
            request.page.write_text(html(report, title="Copydesk under load", facts=facts), encoding="utf-8")
        except OSError as error:
            terminal.say_error(f"{request.page}: {error.strerror}")
            return _FAILED
    return 0


def _lateness(report: LoadReport) -> str:
    if report.late_p99_ms < LATE_MS:
        return ""
    return (
        f"requests were sent late, P99 {report.late_p99_ms:.1f} ms: the latencies are in part the generator's "
        "(more --processes may help)"
    )


def _table(report: LoadReport) -> str:
    failures = [
        (one.kind, f"{one.count}: {' | '.join(' '.join(text.split()) for text in one.messages)}")
        for one in report.failures
    ]
    shown = [*rows(report), *failures]
    width = max(len(name) for name, _ in shown)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in shown)


def _say(line: str) -> None:
    terminal.stderr().print(escape(line), soft_wrap=True)
