"""`copydesk model search`: which precision makes a model fastest without its corrections getting worse."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

import msgspec
from rich.markup import escape

from copydesk.cli import terminal
from copydesk.cli.commands.model import PreparationError
from copydesk.cli.onboarding.ledger import Ledger, digest_of
from copydesk.cli.onboarding.precision import Choice, plans_for
from copydesk.cli.onboarding.search import Found, SearchInputs, Tell, search
from copydesk.cli.onboarding.search_table import table
from copydesk.cli.onboarding.subject import Ground, Subject, open_ground, open_subject, tool
from copydesk.cli.onboarding.workshop import RealWorkshop, use_device
from copydesk.common.cache_folder import cache_folder
from copydesk.common.errors import CopydeskError
from copydesk.common.telemetry import configure_logging
from copydesk.evaluation import Options

BAD_INPUT = 2
FAILED = 1
INTERRUPTED = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
    """What was asked for. `plans` empty are those that make sense on the device."""

    directory: str
    data: Path | None
    references: tuple[Path, ...]
    clean: Path | None
    limit: int | None
    plans: tuple[str, ...]
    per_tensor: bool
    emulate: bool
    margins: dict[str, float]
    rounds: int
    sentences: int
    device: str
    state: Path | None
    anew: bool
    as_json: bool


class UnusableModelError(CopydeskError):
    """A model that cannot be served as it is: the problems that `copydesk model check` names."""

    exit_code = 2

    def __init__(self, directory: Path, problems: tuple[str, ...]) -> None:
        self.directory = directory
        self.problems = problems
        super().__init__(f"{directory} cannot be used: {'; '.join(problems)}")


def run(request: SearchRequest) -> int:
    """Search and show; returns the exit code."""
    configure_logging("model search", level="error")
    use_device(request.device)
    console = terminal.stderr()
    try:
        found = _found(request, lambda line: console.print(escape(line), soft_wrap=True))
    except KeyboardInterrupt:
        terminal.say_error("interrupted", "the same command goes on from here")
        return INTERRUPTED
    except PreparationError as error:
        terminal.say_error(str(error), error.hint)
        return BAD_INPUT
    except CopydeskError as error:
        terminal.say_error(str(error))
        return getattr(error, "exit_code", FAILED)
    onboard = f"{terminal.own_name()} model onboard {shlex.quote(request.directory)}"
    terminal.write_line(msgspec.json.encode(found) if request.as_json else table(found, onboard).encode())
    return FAILED if found.choice is None else 0


def _found(request: SearchRequest, tell: Tell) -> Found:
    tell("looking at the model, the data and this machine")
    subject = open_subject(request.directory)
    if not subject.report.usable or not subject.digest:
        raise UnusableModelError(subject.directory, tuple(map(str, subject.report.errors)))
    ground = open_ground(request.data, request.references, request.clean, request.limit)
    options = Options(request.margins, alone=0)
    choice = plans_for(
        device=ground.device,
        exact=ground.exact(subject),
        names=request.plans,
        per_tensor=request.per_tensor,
        emulate=request.emulate,
    )
    ledger = Ledger(request.state or default_state(subject, ground))
    if request.anew:
        ledger.forget({"plan", "speed"})
    return hold_search(subject, ground, choice, options, ledger, tell, request.rounds, request.sentences)


def hold_search(
    subject: Subject,
    ground: Ground,
    choice: Choice,
    options: Options,
    ledger: Ledger,
    tell: Tell,
    rounds: int,
    sentences: int,
) -> Found:
    """Search with the real models, on this machine."""
    workshop = workshop_for(subject, ground, options, sentences)
    inputs = SearchInputs(
        model=subject.digest,
        data=ground.data_digest,
        hardware=f"{ground.hardware}, {ground.machine.cores} cores, {ground.device}",
        exact=ground.exact(subject),
        tool=tool(),
        margins=dict(options.margins),
        rounds=rounds,
        sentences=sentences,
    )
    return search(choice.plans, inputs, workshop, ledger, tell, notes=choice.notes)


def workshop_for(subject: Subject, ground: Ground, options: Options, sentences: int) -> RealWorkshop:
    """Return what makes, asks and times this model."""
    return RealWorkshop(
        subject.directory,
        subject.digest,
        ground.corpus,
        options,
        exact=ground.exact(subject),
        circumstances=f"{ground.hardware} {ground.device} {tool()}",
        sentences=sentences,
    )


def default_state(subject: Subject, ground: Ground) -> Path:
    """Where a search is kept: one file a model, data and device."""
    return cache_folder() / "search" / f"{digest_of(subject.digest, ground.data_digest, ground.device)[:16]}.json"
