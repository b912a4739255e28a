"""`copydesk capacity`: find the highest rate that a fleet holds, and certify it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import platformdirs
from rich.markup import escape

from copydesk.cli import terminal
from copydesk.cli.api import KEY_VARIABLE, Api, ApiError, FleetUnreachableError, FleetView, advice
from copydesk.cli.bench.workload import WorkloadError, read_texts
from copydesk.cli.capacity.picture import picture
from copydesk.cli.capacity.render import render, step_line, trial_line
from copydesk.cli.capacity.subject import UNKNOWN, NotServedError, slots_of, subject_of
from copydesk.cli.commands.status import find_fleet
from copydesk.common.errors import CopydeskError
from copydesk.loadtest.certificate import (
    Certificate,
    CertificateError,
    encode,
    read_certificate,
    write_certificate,
)
from copydesk.loadtest.client import Target, correction_bodies
from copydesk.loadtest.examination import certify, examine, scope_of
from copydesk.loadtest.generators import GeneratorError, Generators
from copydesk.loadtest.ground import FleetGround, NoAnswerError, Timing, batch_shapes
from copydesk.loadtest.record import Record, RecordError, Subject, read_record, write_record
from copydesk.loadtest.search import Hopeless, Measure
from copydesk.loadtest.trial import Trial
from copydesk.loadtest.verdict import Judgement, Rules

_BAD_INPUT = 2
_FAILED = 1
_INTERRUPTED = 130
MOST_AT_ONCE = 2048
"""Of the batches that are warmed; more pods than that share are warmed by the load itself."""

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CapacityRequest:
    """What was asked for on the command line."""

    url: str | None
    model: str | None
    rules: Rules
    timing: Timing
    precision: float
    start: float | None
    max_rate: float
    processes: int
    texts: Path | None
    hardware: str | None
    config: dict[str, str]
    state: Path | None
    resume: bool
    output: Path | None
    picture: Path | None
    seed: int
    as_json: bool


class ObjectiveError(CopydeskError):
    """A latency that no fleet can keep, because this one needs longer for a single request."""

    def __init__(self, slo_ms: float, best_ms: float) -> None:
        self.slo_ms = slo_ms
        self.best_ms = best_ms
        super().__init__(
            f"the objective, {slo_ms:g} ms, is below the best latency: {best_ms:.1f} ms with one request at a time"
        )


class FleetChangedError(CopydeskError):
    """The fleet is not the one that was measured: pods or weights changed meanwhile."""

    def __init__(self, before: str, after: str) -> None:
        super().__init__(f"the fleet changed while it was measured: {before} before, {after} now")


def capacity(request: CapacityRequest) -> int:
    """Measure and show; returns the exit code."""
    url, _ = find_fleet(request.url)
    state = request.state or default_state(url)
    console = terminal.stderr()
    began = time.time()
    try:
        certificate = _certified(request, url, state, lambda line: console.print(escape(line), soft_wrap=True))
    except KeyboardInterrupt:
        _say_interrupted(state, began, resumed=request.resume)
        return _INTERRUPTED
    except (ApiError, FleetUnreachableError) as error:
        terminal.say_error(str(error), advice(error))
        return _BAD_INPUT
    except (WorkloadError, RecordError, ObjectiveError) as error:
        terminal.say_error(str(error))
        return _BAD_INPUT
    except (NotServedError, NoAnswerError) as error:
        terminal.say_error(str(error), "see copydesk status")
        return error.exit_code
    except (GeneratorError, FleetChangedError) as error:
        terminal.say_error(str(error), f"the trials so far are in {state}: --resume goes on from them")
        return _FAILED
    if certificate is None:
        return _FAILED
    return _show(certificate, request.output, request.picture, as_json=request.as_json)


def show_saved(path: Path, picture_path: Path | None, *, as_json: bool) -> int:
    """Show a certificate from a file; returns the exit code."""
    try:
        certificate = read_certificate(path)
    except CertificateError as error:
        terminal.say_error(str(error))
        return _BAD_INPUT
    return _show(certificate, None, picture_path, as_json=as_json)


def default_state(url: str) -> Path:
    """Where the trials of a fleet are kept: one file a server."""
    parts = urlsplit(url)
    name = f"{parts.hostname or 'fleet'}-{parts.port or parts.scheme}".replace(":", "_")
    return platformdirs.user_state_path("copydesk") / "capacity" / f"{name}.json"


def _certified(request: CapacityRequest, url: str, state: Path, tell: Tell) -> Certificate | None:
    fleet = _look(url)
    subject = subject_of(url, fleet, model=request.model, hardware=request.hardware, config=request.config)
    if subject.hardware.name == UNKNOWN:
        tell("the hardware is not known: name it with --hardware, or the certificate will fit nothing")
    record = read_record(state) if request.resume else None
    if record is not None:
        record.require(str(state), subject, request.rules)
        tell(f"going on from {len(record.trials)} trials in {state}")
    bodies = correction_bodies(read_texts(request.texts, None), request.model or "")
    target = Target(url=url, bodies=bodies, headers=_headers())
    shapes = batch_shapes(min(slots_of(fleet), MOST_AT_ONCE))
    return asyncio.run(_search(request, subject, record, target, shapes, state, tell))


async def _search(
    request: CapacityRequest,
    subject: Subject,
    record: Record | None,
    target: Target,
    shapes: tuple[int, ...],
    state: Path,
    tell: Tell,
) -> Certificate | None:
    async with Generators(target) as generators:
        timing = request.timing if record is None else record.timing
        ground = FleetGround(generators, timing, slo_ms=request.rules.slo_ms, shapes=shapes)
        if record is None:
            record = await _begun(request, subject, ground, tell)
        write_record(record, state)
        begun = record

        def on_step(step: Measure) -> None:
            tell(step_line(len(begun.trials) + 1, step, ground.seconds(step)))

        def on_trial(so_far: Record, trial: Trial, judgement: Judgement) -> None:
            nonlocal begun
            begun = so_far
            write_record(so_far, state)
            tell(trial_line(trial, judgement))

        record, end = await examine(record, ground, on_step=on_step, on_trial=on_trial)
    _require_same(subject, _look(subject.url))
    if isinstance(end, Hopeless):
        reasons = "; ".join(end.reasons)
        terminal.say_error(f"no rate was found that holds; at {end.trial.rate:g} requests/s: {reasons}")
        return None
    return certify(record, end, time.time())


async def _begun(request: CapacityRequest, subject: Subject, ground: FleetGround, tell: Tell) -> Record:
    tell("warming, and looking at the fleet alone and in batches")
    scouted = await ground.scout()
    tell(
        f"one at a time: best {scouted.best_ms:.1f} ms, median {scouted.alone_ms:.1f} ms; "
        f"in batches about {scouted.batch_rate:.1f}/s"
    )
    if scouted.best_ms >= request.rules.slo_ms:
        raise ObjectiveError(request.rules.slo_ms, scouted.best_ms)
    scope = scope_of(
        scouted,
        limit=request.max_rate,
        precision=request.precision,
        processes=request.processes,
        start=request.start,
    )
    return Record(
        subject=subject,
        rules=request.rules,
        timing=request.timing,
        scope=scope,
        scouted=scouted,
        seed=request.seed,
    )


def _say_interrupted(state: Path, began: float, *, resumed: bool) -> None:
    try:
        kept = resumed or state.stat().st_mtime >= began - 1.0
    except OSError:
        kept = False
    if kept:
        terminal.say_error(f"interrupted; the trials so far are in {state}", "go on with --resume")
    else:
        terminal.say_error("interrupted before the first trial")


def _look(url: str) -> FleetView:
    api = Api(url)
    try:
        return api.fleet()
    finally:
        api.close()


def _require_same(subject: Subject, fleet: FleetView) -> None:
    now = subject_of(subject.url, fleet, model=None, hardware=subject.hardware.name, config=subject.config)
    before, after = (f"{one.pods} pods of {one.model_digest[:19]}" for one in (subject, now))
    if before != after:
        raise FleetChangedError(before, after)


def _headers() -> dict[str, str]:
    key = os.environ.get(KEY_VARIABLE, "")
    return {"Authorization": f"Bearer {key}"} if key else {}


def _show(certificate: Certificate, output: Path | None, picture_path: Path | None, *, as_json: bool) -> int:
    try:
        if output is not None:
            write_certificate(certificate, output)
        if picture_path is not None:
            picture_path.write_text(picture(certificate), encoding="utf-8")
    except CertificateError as error:
        terminal.say_error(str(error))
        return _BAD_INPUT
    except OSError as error:
        terminal.say_error(f"{picture_path}: {error.strerror}")
        return _BAD_INPUT
    terminal.write_line(encode(certificate).strip() if as_json else render(certificate).encode())
    return 0
