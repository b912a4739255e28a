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
from copydesk.cli.capacity.into_profile import CERTIFICATE, profile_of, write_figures
from copydesk.cli.capacity.picture import picture
from copydesk.cli.capacity.render import render, step_line, trial_line
from copydesk.cli.capacity.subject import UNKNOWN, NotServedError, serving, slots_of, subject_of
from copydesk.cli.commands.status import find_fleet
from copydesk.cli.fleet.state import FleetState
from copydesk.cli.output_file import OutputError, require_writable
from copydesk.common.errors import CopydeskError
from copydesk.common.profile import ProfileError
from copydesk.common.whole_file import replace_file
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
from copydesk.loadtest.verdict import Judgement, Rules, Verdict, judge, least_arrivals

_BAD_INPUT = 2
_FAILED = 1
_INTERRUPTED = 130
MOST_AT_ONCE = 2048
"""Of the batches that are warmed; more pods than that share are warmed by the load itself."""

RETURN_S = 15.0
"""For so long a pod may be away after a trial, seconds: one that a load has killed is started again meanwhile."""
TOO_BUSY = (
    "this machine is too busy to send on time, which says nothing of the fleet: stop what else runs here, measure "
    "from another machine, or allow more --processes"
)

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
    profile: Path | None = None


class ObjectiveError(CopydeskError):
    """A latency that no fleet can keep, because this one needs longer for a single request."""

    def __init__(self, slo_ms: float, best_ms: float) -> None:
        self.slo_ms = slo_ms
        self.best_ms = best_ms
        super().__init__(
            f"the objective, {slo_ms:g} ms, is below the best latency: {best_ms:.1f} ms with one request at a time"
        )


class AutoscaledError(CopydeskError):
    """A fleet whose size follows the load, so that no trial would find the pods of the one before."""

    def __init__(self, least: int, most: int) -> None:
        self.least = least
        self.most = most
        super().__init__(
            f"this fleet is autoscaled between {least} and {most} pods, and what changes cannot be measured; "
            f"measure one that stays as it is: copydesk up --pods {most}"
        )


class FewArrivalsError(CopydeskError):
    """Trials of so few requests that none of them could ever pass."""

    def __init__(self, arrivals: int, least: int, share: float) -> None:
        self.arrivals = arrivals
        self.least = least
        super().__init__(
            f"--arrivals is {arrivals}, expected at least {least}: fewer cannot show that below {share:.6g} % miss"
        )


class FleetChangedError(CopydeskError):
    """The fleet is not the one that was measured: pods or weights changed meanwhile."""

    def __init__(self, before: str, after: str) -> None:
        super().__init__(f"the fleet changed while it was measured: {before} before, {after} now")


class CutShortError(CopydeskError):
    """The search ended before its time, because of the fleet or the generator."""


def capacity(request: CapacityRequest) -> int:
    """Measure and show; returns the exit code."""
    url, fleet = find_fleet(request.url)
    state = request.state or default_state(url)
    console = terminal.stderr()
    began = time.time()
    try:
        _require_steady(fleet)
        certificate = _certified(request, url, state, lambda line: console.print(escape(line), soft_wrap=True))
    except KeyboardInterrupt:
        _say_interrupted(state, began, resumed=request.resume)
        return _INTERRUPTED
    except (ApiError, FleetUnreachableError) as error:
        terminal.say_error(str(error), advice(error))
        return _BAD_INPUT
    except (WorkloadError, RecordError, ObjectiveError, FewArrivalsError, AutoscaledError, OutputError) as error:
        terminal.say_error(str(error))
        return _BAD_INPUT
    except ProfileError as error:
        terminal.say_error(str(error), "measure a fleet that runs it: copydesk up --profile FILE --pods N")
        return error.exit_code
    except (NotServedError, NoAnswerError) as error:
        terminal.say_error(str(error), "see copydesk status")
        return error.exit_code
    except GeneratorError as error:
        terminal.say_error(str(error))
        return _FAILED
    except CutShortError as error:
        terminal.say_error(str(error), f"the trials so far are in {state}: --resume goes on from them")
        return _FAILED
    if certificate is None:
        return _FAILED
    code = _show(certificate, _output(request), request.picture, request.profile, as_json=request.as_json)
    if code:
        console.print(escape(f"the trials are in {state}: --resume certifies them again at once"), soft_wrap=True)
    return code


def show_saved(path: Path, picture_path: Path | None, profile: Path | None, *, as_json: bool) -> int:
    """Show a certificate from a file, and write its figures into a profile; returns the exit code."""
    try:
        certificate = read_certificate(path)
    except CertificateError as error:
        terminal.say_error(str(error))
        return _BAD_INPUT
    code = _show(certificate, None, picture_path, None, as_json=as_json)
    return code or _profiled(certificate, path, profile)


def default_state(url: str) -> Path:
    """Where the trials of a fleet are kept: one file a server."""
    parts = urlsplit(url)
    name = f"{parts.hostname or 'fleet'}-{parts.port or parts.scheme}".replace(":", "_")
    return platformdirs.user_state_path("copydesk") / "capacity" / f"{name}.json"


def _certified(request: CapacityRequest, url: str, state: Path, tell: Tell) -> Certificate | None:
    least = least_arrivals(request.rules)
    if request.timing.arrivals < least:
        raise FewArrivalsError(request.timing.arrivals, least, 100.0 * request.rules.slow_share)
    for path in (_output(request), request.picture, request.profile):
        require_writable(path)
    fleet = _look(url)
    subject = subject_of(url, fleet, model=request.model, hardware=request.hardware, config=request.config)
    if request.profile is not None:
        profile_of(request.profile, subject.model, subject.model_digest)
    if subject.hardware.name == UNKNOWN:
        tell("the hardware is not known: name it with --hardware, or the certificate will fit nothing")
    record = read_record(state) if request.resume else None
    if record is not None:
        record.require(str(state), subject, request.rules)
        tell(f"going on from {len(record.trials)} trials in {state}, as that search was begun")
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
        ground = FleetGround(generators, timing, request.rules, shapes=shapes, check=lambda: _remain(subject))
        if record is None:
            record = await _begun(request, subject, ground, tell)
        write_record(record, state)
        begun, told = record, False

        def on_step(step: Measure) -> None:
            tell(step_line(len(begun.trials) + 1, step, ground.seconds(step)))

        def on_trial(so_far: Record, trial: Trial, judgement: Judgement) -> None:
            nonlocal begun, told
            begun = so_far
            write_record(so_far, state)
            tell(trial_line(trial, judgement))
            if judgement.verdict is Verdict.INVALID and not told:
                told = True
                tell(f"  {TOO_BUSY}")

        try:
            record, end = await examine(record, ground, on_step=on_step, on_trial=on_trial)
            await _remain(subject)
        except (ApiError, FleetUnreachableError, FleetChangedError, NoAnswerError, GeneratorError) as error:
            raise CutShortError(str(error)) from error
    if isinstance(end, Hopeless):
        _say_hopeless(end, record.rules)
        return None
    return certify(record, end, time.time())


def _say_hopeless(end: Hopeless, rules: Rules) -> None:
    reasons = "; ".join(end.reasons)
    if judge(end.trial, rules).verdict is Verdict.INVALID:
        terminal.say_error(f"nothing was found out; at {end.trial.rate:g} requests/s: {reasons}", TOO_BUSY)
        return
    terminal.say_error(f"no rate was found that holds; at {end.trial.rate:g} requests/s: {reasons}")


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


async def _remain(subject: Subject) -> None:
    """Make sure that the fleet is the one that is measured; give pods time to come back.

    Raises:
        FleetChangedError: It is not, and does not become it again.
        ApiError: The gateway refuses.
        FleetUnreachableError: It does not answer.
    """
    loop = asyncio.get_running_loop()
    before, end = _kind(subject.pods, subject.model_digest), loop.time() + RETURN_S
    while True:
        fleet = await asyncio.to_thread(_look, subject.url)
        after = _kind(len(serving(fleet)), fleet.model_digest)
        if after == before:
            return
        if loop.time() >= end:
            raise FleetChangedError(before, after)
        await asyncio.sleep(1.0)


def _kind(pods: int, digest: str) -> str:
    return f"{pods} {'pod' if pods == 1 else 'pods'} of {digest[:19] or 'no model'}"


def _require_steady(fleet: FleetState | None) -> None:
    scaling = fleet.scaling if fleet is not None else None
    if scaling is not None and scaling.least < scaling.most:
        raise AutoscaledError(scaling.least, scaling.most)


def _headers() -> dict[str, str]:
    key = os.environ.get(KEY_VARIABLE, "")
    return {"Authorization": f"Bearer {key}"} if key else {}


def _output(request: CapacityRequest) -> Path | None:
    """Say where the certificate goes: a profile names one, and so it is kept where there is a profile."""
    beside = request.profile and request.profile.parent / CERTIFICATE
    return request.output or beside


def _show(
    certificate: Certificate,
    output: Path | None,
    picture_path: Path | None,
    profile: Path | None,
    *,
    as_json: bool,
) -> int:
    """Print first: what took minutes to measure is not to be lost because of a full disk."""
    terminal.write_line(encode(certificate).strip() if as_json else render(certificate).encode())
    try:
        if output is not None:
            write_certificate(certificate, output)
        if picture_path is not None:
            replace_file(picture_path, picture(certificate).encode())
    except CertificateError as error:
        terminal.say_error(str(error))
        return _FAILED
    except OSError as error:
        terminal.say_error(f"{picture_path}: {error.strerror}")
        return _FAILED
    return 0 if output is None else _profiled(certificate, output, profile)


def _profiled(certificate: Certificate, file: Path, profile: Path | None) -> int:
    """Write the figures into a profile, if there is one; returns the exit code."""
    if profile is None:
        return 0
    try:
        write_figures(certificate, file, profile)
    except (ProfileError, CertificateError) as error:
        terminal.say_error(str(error))
        return _FAILED
    terminal.stderr().print(
        escape(f"R*, C* and target concurrency of a pod are in {profile}, the certificate is {file}"),
        soft_wrap=True,
    )
    return 0
