"""`copydesk autoscaler explain`: the last decisions in words."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from copydesk.autoscaler.log_entry import DRY, LIVE, Entry
from copydesk.autoscaler.log_file import LogTail, last_entries, log_files
from copydesk.cli import terminal
from copydesk.cli.decisions.find import candidates, find_log, listen, overhear
from copydesk.cli.decisions.plain import plain
from copydesk.cli.decisions.render import decision_table, told
from copydesk.cli.decisions.row import rows, same_story
from copydesk.cli.discovery.origin import OriginError
from copydesk.common.messages import InvalidNameError, subject_token
from copydesk.common.telemetry import configure_logging

BAD_INPUT = 2
NOTHING_FOUND = 1
LOOK_S = 0.5

STORY = 40
"""Decisions that are read for each row that is wanted, where those that keep the size are put together."""
MOST_READ = 200_000


@dataclass(frozen=True, slots=True)
class ExplainRequest:
    """What was asked for on the command line; `wait` in seconds."""

    models: tuple[str, ...]
    last: int
    file: Path | None
    nats_url: str | None
    wait: float
    changes: bool
    every: bool
    shadow: bool
    as_json: bool
    watch: bool

    def wants(self, entry: Entry) -> bool:
        """Say whether a decision is one of those that were asked for."""
        return (
            (not self.models or entry.model in self.models)
            and (self.shadow or entry.policy in (LIVE, DRY))
            and (not self.changes or entry.replicas != entry.size)
        )

    @property
    def depth(self) -> int:
        """How many decisions to read for the rows."""
        return self.last + 1 if self.every or self.changes else min(MOST_READ, self.last * STORY)


def explain(request: ExplainRequest) -> int:
    """Show them; return the exit code."""
    configure_logging("explain", level="error")
    try:
        for model in request.models:
            subject_token(model)
        return _explain(request)
    except InvalidNameError as error:
        terminal.say_error(f"--model: {error}")
    except OriginError as error:
        terminal.say_error(error.problem, error.hint)
    except BrokenPipeError:  # who reads has seen enough
        raise
    except OSError as error:
        terminal.say_error(f"{error.filename or 'standard output'}: {error.strerror or error}")
    except KeyboardInterrupt:
        return 0
    return BAD_INPUT


def _explain(request: ExplainRequest) -> int:
    if request.file is not None and request.nats_url is not None:
        raise OriginError("--file and --nats-url were both given", "decisions are from one of them")
    if request.nats_url is not None:
        return _over_nats(request)
    if request.file is not None and not log_files(request.file):
        raise OriginError(f"{request.file} does not exist", "a log is named by COPYDESK_AUTOSCALER_LOG_FILE")
    path = request.file or find_log(os.environ)
    return _over_nats(request) if path is None else _from_file(request, path)


def _from_file(request: ExplainRequest, path: Path) -> int:
    tail = LogTail(path)
    found = last_entries(path, request.depth, request.wants)
    code = _show(request, found, f"in {path}")
    if request.watch:
        teller = _Teller(request, found[-1:])
        with suppress(KeyboardInterrupt):
            asyncio.run(_follow(tail, teller.tell))
        return 0
    return code


async def _follow(tail: LogTail, tell: Callable[[Entry], None]) -> None:
    while True:
        for entry in tail.new():
            tell(entry)
        await asyncio.sleep(LOOK_S)


def _over_nats(request: ExplainRequest) -> int:
    if request.watch:
        teller = _Teller(request, [])
        with suppress(KeyboardInterrupt):
            asyncio.run(_listen(request, teller.tell))
        return 0
    try:
        found = asyncio.run(overhear(request.nats_url, request.models, request.wait))
    except OriginError as error:
        if request.nats_url is not None:
            raise
        looked = ", ".join(dict.fromkeys(str(path) for path in candidates(os.environ)))
        raise OriginError(f"there is no decision log ({looked}), and {error.problem}", error.hint) from error
    wanted = [entry for entry in found if request.wants(entry)]
    return _show(request, wanted, f"within {request.wait:g} s over NATS")


async def _listen(request: ExplainRequest, tell: Callable[[Entry], None]) -> None:
    bus = await listen(request.nats_url, request.models, tell)
    terminal.stderr().print("listening over NATS until Ctrl-C; decisions come every two seconds", style="dim")
    try:
        await asyncio.Event().wait()
    finally:
        await bus.close()


def _show(request: ExplainRequest, found: list[Entry], where: str) -> int:
    if not found:
        if not request.watch:
            terminal.say_error(f"no such decisions {where}", _advice(request))
        return NOTHING_FOUND
    if request.as_json:
        for entry in found[-request.last :]:
            terminal.write_line(msgspec.json.encode(entry))
    else:
        legible = (plain(entry) for entry in found)
        terminal.stdout().print(decision_table(rows(legible, every=request.every)[-request.last :]))
    return 0


def _advice(request: ExplainRequest) -> str:
    if request.changes:
        return "without --changes, those that kept the size are shown as well"
    if request.models:
        return "without --model, all models are shown"
    return "is an autoscaler running that leads? (copydesk up --autoscale, or python -m copydesk.autoscaler)"


class _Teller:
    """Tells decisions as they come, those that say something new."""

    def __init__(self, request: ExplainRequest, before: list[Entry]) -> None:
        self._request = request
        self._console = terminal.stdout()
        self._last = {(entry.model, entry.policy): entry for entry in before}

    def tell(self, entry: Entry) -> None:
        """Show a decision, unless it tells the same story as the one before."""
        if not self._request.wants(entry):
            return
        key = (entry.model, entry.policy)
        before, self._last[key] = self._last.get(key), entry
        if before is not None and not self._request.every and same_story(before, entry):
            return
        if self._request.as_json:
            terminal.write_line(msgspec.json.encode(entry))
        else:
            self._console.print(told(plain(entry)))
