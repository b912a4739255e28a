"""`copydesk model onboard`: from a checkpoint to a fleet configuration, or to the reason why not."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from rich.markup import escape

from copydesk.cli import terminal
from copydesk.cli.capacity.picture import picture
from copydesk.cli.commands.model import PreparationError
from copydesk.cli.commands.model_evaluate import page_of
from copydesk.cli.fleet.plan import model_name
from copydesk.cli.onboarding.ledger import Ledger
from copydesk.cli.onboarding.making_profile import whole_profile
from copydesk.cli.onboarding.next_steps import NextSteps
from copydesk.cli.onboarding.outlook import Outlook, duration, expectations
from copydesk.cli.onboarding.precision import plans_for
from copydesk.cli.onboarding.real_tools import RealTools
from copydesk.cli.onboarding.report import Facts, page, verdict
from copydesk.cli.onboarding.search import SearchInputs, Tell
from copydesk.cli.onboarding.stages import (
    PROFILE,
    STAGES,
    Job,
    Onboarded,
    Progress,
    StageFailedError,
    forgotten_from,
    onboard,
)
from copydesk.cli.onboarding.subject import DEFAULT, Ground, Subject, open_ground, open_subject, tool
from copydesk.cli.onboarding.tuning import settings_to_try
from copydesk.cli.onboarding.workshop import use_device
from copydesk.common.errors import CopydeskError
from copydesk.common.profile import Profile, ProfileError, write_profile
from copydesk.common.telemetry import configure_logging
from copydesk.common.whole_file import replace_file
from copydesk.evaluation import Options
from copydesk.loadtest.certificate import Certificate, read_certificate

BAD_INPUT = 2
INTERRUPTED = 130
QUICK_ROUNDS, ROUNDS = 3, 5
QUICK_SENTENCES, SENTENCES = 24, 64
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class OnboardRequest:
    """What was asked for. `out` None is a folder by the model's name; `plan` "" searches."""

    directory: str
    out: Path | None
    name: str
    data: Path | None
    references: tuple[Path, ...]
    clean: Path | None
    limit: int | None
    plan: str
    plans: tuple[str, ...]
    emulate: bool
    margins: dict[str, float]
    quick: bool
    capacity: bool
    slo_ms: float
    max_rate: float | None
    device: str
    restart_from: str
    as_json: bool


class OutError(CopydeskError):
    """The folder of the results cannot be used: `path`, and why."""

    exit_code = 2

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        super().__init__(f"{path}: {reason}")


class ModelNameError(CopydeskError):
    """A name that no model can have."""

    exit_code = 2

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"--name {name!r}; expected 1 to 64 letters, digits, '_' or '-'")


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What `--json` prints: whether the model is taken; the files, or the stage at which it ended, and why."""

    taken: bool
    verdict: str
    profile: str | None = None
    report: str | None = None
    plan: str | None = None
    stage: str | None = None
    reason: str | None = None
    advice: str | None = None


def run(request: OnboardRequest) -> int:
    """Onboard and show; returns the exit code."""
    configure_logging("model onboard", level="error")
    use_device(request.device)
    console = terminal.stderr()
    try:
        return _run(request, lambda line: console.print(escape(line), soft_wrap=True))
    except KeyboardInterrupt:
        terminal.say_error("interrupted", "the same command goes on from here")
        return INTERRUPTED
    except StageFailedError as error:
        return _refused(error, as_json=request.as_json)
    except PreparationError as error:
        terminal.say_error(str(error), error.hint)
        return BAD_INPUT
    except CopydeskError as error:
        terminal.say_error(str(error))
        return getattr(error, "exit_code", 1)


def _run(request: OnboardRequest, tell: Tell) -> int:
    if request.name and not _NAME.fullmatch(request.name):
        raise ModelNameError(request.name)
    tell("looking at the model, the data and this machine")
    subject = open_subject(request.directory)
    ground = open_ground(request.data, request.references, request.clean, request.limit)
    job = _job(request, subject, ground)
    out = (request.out or Path(f"{job.name}-onboarded")).absolute()
    with _held(out):
        ledger = Ledger(out / "onboarding.json")
        if request.restart_from:
            ledger.forget(forgotten_from(request.restart_from))
        tools = _tools(request, job, subject, ground, ledger, out, tell)
        outlook = Outlook(_expected(job, subject, ground))
        tell(f"onboarding {job.name} into {out}, about {duration(outlook.left())} if nothing is kept from before")
        onboarded = onboard(job, tools, Progress(ledger, tell, outlook))
        steps = NextSteps(terminal.own_name(), str(out / "profile.yaml"), _is_default(onboarded))
        profile = _write(onboarded, job, ground, steps, request.quick)
        tell(f"[{len(STAGES)}/{len(STAGES)}] {PROFILE}: {out / 'profile.yaml'}, {out / 'report.html'}")
    _show(profile, onboarded, out, steps, as_json=request.as_json)
    return 0


def _job(request: OnboardRequest, subject: Subject, ground: Ground) -> Job:
    exact = ground.exact(subject)
    names = (request.plan,) if request.plan else request.plans
    quick = request.quick
    return Job(
        name=request.name or ("gec-en" if request.directory == DEFAULT else model_name(subject.directory)),
        inputs=SearchInputs(
            model=subject.digest,
            data=ground.data_digest,
            hardware=f"{ground.hardware}, {ground.machine.cores} cores, {ground.device}",
            exact=exact,
            tool=tool(),
            margins=dict(request.margins),
            rounds=QUICK_ROUNDS if quick else ROUNDS,
            sentences=QUICK_SENTENCES if quick else SENTENCES,
        ),
        choice=plans_for(device=ground.device, exact=exact, names=names, emulate=request.emulate),
        plan=request.plan,
        quick=quick,
        capacity=request.capacity,
        slo_ms=request.slo_ms,
        max_rate=request.max_rate,
    )


def _tools(
    request: OnboardRequest, job: Job, subject: Subject, ground: Ground, ledger: Ledger, out: Path, tell: Tell
) -> RealTools:
    return RealTools(
        job=job,
        subject=subject,
        ground=ground,
        options=Options(request.margins, alone=0),
        ledger=ledger,
        out=out,
        tell=tell,
        rounds=job.inputs.rounds,
        sentences=job.inputs.sentences,
        tool=tool(),
        now=lambda: datetime.now(UTC),
    )


def _expected(job: Job, subject: Subject, ground: Ground) -> dict[str, float]:
    corpus = ground.corpus
    return expectations(
        weights=subject.report.sizes.bytes,
        sentences=len(corpus.examples) + len(corpus.clean),
        plans=len(job.choice.plans),
        settings=len(settings_to_try(ground.machine.cores, quick=job.quick)),
        searched=not job.plan,
        capacity=job.capacity,
        quick=job.quick,
    )


@contextlib.contextmanager
def _held(out: Path) -> Iterator[None]:
    """Make the folder, and be the only one who works in it; a process that was killed holds nothing."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(out / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise OutError(out, error.strerror or str(error)) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            reason = "another run works in it: wait for it, or give another --out"
            if not isinstance(error, BlockingIOError):
                reason = f"it cannot be locked: {error.strerror or error}"
            raise OutError(out, reason) from error
        yield
    finally:
        os.close(descriptor)


def _is_default(onboarded: Onboarded) -> bool:
    """Whether it serves by the files of the default model, which `copydesk up` runs when nothing else is named."""
    from copydesk.inference.checkpoint import default_model_directory, read_digest
    from copydesk.inference.checkpoint.errors import CheckpointError

    try:
        return read_digest(default_model_directory()) == onboarded.serving.made.digest
    except (CheckpointError, OSError):  # it was never prepared here
        return False


def _write(onboarded: Onboarded, job: Job, ground: Ground, steps: NextSteps, quick: bool) -> Profile:
    """Write what it ends with: the profile last, since who finds it takes the rest to be there."""
    now = datetime.now(UTC).replace(microsecond=0)
    path = Path(steps.profile)
    out = path.parent
    try:
        profile = whole_profile(job.name, onboarded, path, now, tool(), ground.device)
        facts = Facts(
            made=now.strftime("%Y-%m-%d %H:%M UTC"),
            command=shlex.join(["copydesk", *sys.argv[1:]]),
            steps=steps,
            hardware=ground.hardware,
            quick=quick,
            device=ground.device,
            no_accelerator=not ground.device.startswith("cuda"),
        )
        certificate = _certificate(onboarded)
        drawn = picture(certificate) if certificate is not None else ""
        replace_file(out / "report.html", page(profile, onboarded, facts, certificate, drawn).encode())
        replace_file(out / "quality.html", page_of(onboarded.quality, now.timestamp(), sys.argv[1:]).encode())
        write_profile(profile, path)
    except ProfileError as error:
        raise StageFailedError(PROFILE, str(error), "free some space, and run it again") from error
    except OSError as error:
        reason = f"{error.filename or out}: {error.strerror or error}"
        raise StageFailedError(PROFILE, reason, "free some space, and run it again") from error
    for name in (".trial.yaml", ".texts"):
        (out / name).unlink(missing_ok=True)
    return profile


def _certificate(onboarded: Onboarded) -> Certificate | None:
    certified = onboarded.certified
    return None if certified is None else read_certificate(Path(certified.file))


def _show(profile: Profile, onboarded: Onboarded, out: Path, steps: NextSteps, *, as_json: bool) -> None:
    path, told = out / "profile.yaml", verdict(profile, onboarded)
    if as_json:
        result = Result(
            taken=True,
            verdict=told,
            profile=str(path),
            report=str(out / "report.html"),
            plan=onboarded.serving.plan.name,
        )
        terminal.write_line(msgspec.json.encode(result))
        return
    lines = [
        told,
        "",
        f"  report    {out / 'report.html'}",
        f"  profile   {path}",
        f"  run it    {steps.run}",
    ]
    if steps.roll_out is not None:
        beside, rollout = steps.roll_out
        lines += [f"  roll out  {beside}", f"            {rollout}  # in another terminal"]
    terminal.write_line("\n".join(lines).encode())


def _refused(error: StageFailedError, *, as_json: bool) -> int:
    terminal.say_error(f"not taken, at stage {error}", error.advice)
    if as_json:
        told = f"not taken, at stage {error.stage}"
        result = Result(taken=False, verdict=told, stage=error.stage, reason=error.reason, advice=error.advice)
        terminal.write_line(msgspec.json.encode(result))
    return error.exit_code
