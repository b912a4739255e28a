"""`copydesk eds inspect`: who is in the fleet, as gateways are told, or as a source states it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
from rich.live import Live

from copydesk.cli import terminal
from copydesk.cli.discovery.nats_origin import NatsOrigin, find_nats
from copydesk.cli.discovery.origin import Origin, OriginError
from copydesk.cli.discovery.picture import ModelRows, Picture
from copydesk.cli.discovery.render import tables
from copydesk.common.messages import EndpointsSnapshot, InvalidNameError, subject_token
from copydesk.common.telemetry import configure_logging

BAD_INPUT = 2
NOTHING_HEARD = 1

INTERVAL_S = 2.5
"""Over NATS every model is heard within an interval of two seconds, and a bit."""

SOURCE_S = 10.0
"""A source tells of all models at once, but may have to be asked more than once."""

LOOK_S = 1.0
"""How often, while watching, a replica is asked what it holds back, and the connection is looked at."""

Show = Callable[[Picture, str], None]


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was heard, as `--json` prints it."""

    source: str
    models: tuple[ModelRows, ...]


@dataclass(frozen=True, slots=True)
class InspectRequest:
    """What was asked for on the command line; `wait` in seconds, None: as long as the source may need."""

    source: str
    models: tuple[str, ...]
    nats_url: str | None
    file: Path | None
    service: str | None
    wait: float | None
    as_json: bool
    watch: bool

    @property
    def over_nats(self) -> bool:
        """Whether snapshots are wanted as they are published."""
        return self.source == "nats"

    @property
    def patience(self) -> float:
        """For how many seconds to listen."""
        return self.wait or (INTERVAL_S if self.over_nats else SOURCE_S)


def inspect(request: InspectRequest) -> int:
    """Show what is known once, or until Ctrl-C; return the exit code."""
    configure_logging("inspect", level="error")
    if request.file is not None and request.source != "static":
        terminal.say_error(f"--file is not for the source {request.source}", "add --source static")
        return BAD_INPUT
    try:
        for model in request.models:
            subject_token(model)
        return asyncio.run(_inspect(request))
    except InvalidNameError as error:
        terminal.say_error(f"--model: {error}")
    except OriginError as error:
        terminal.say_error(error.problem, error.hint)
    return BAD_INPUT


async def _inspect(request: InspectRequest) -> int:
    origin = _origin(request)
    picture = Picture(request.source, request.models)
    news = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_snapshot(snapshot: EndpointsSnapshot) -> None:
        picture.take(snapshot, loop.time())
        news.set()

    async with AsyncExitStack() as stack:
        stack.push_async_callback(origin.close)
        await origin.start(on_snapshot)
        if request.watch:
            show = _json_lines if request.as_json else stack.enter_context(_Screen(request.source)).show
            await _watch(request, origin, picture, news, show)
        await _listen(request, picture, news)
        if not picture.models and origin.trouble:
            raise OriginError(f"{request.source} cannot be heard ({origin.trouble})", _advice(request))
        if request.service is not None:
            await _hold(request.service, picture)
    return _show(request, picture)


def _origin(request: InspectRequest) -> Origin:
    if request.over_nats:
        url, token = find_nats(request.nats_url, os.environ)
        return NatsOrigin(url, token, request.models)
    from copydesk.cli.discovery.source_origin import SourceOrigin

    try:
        return SourceOrigin(request.source, request.file)
    except ModuleNotFoundError as error:
        raise OriginError(f"{error.name} is not installed", "install copydesk-cli[fleet]") from error


async def _listen(request: InspectRequest, picture: Picture, news: asyncio.Event) -> None:
    """Listen until all that was asked for has been heard, at most as long as patience lasts."""
    with suppress(TimeoutError):
        async with asyncio.timeout(request.patience):
            while not picture.complete and (request.over_nats or not picture.models):
                await news.wait()
                news.clear()


def _show(request: InspectRequest, picture: Picture) -> int:
    rows = picture.rows(time.time())
    if request.as_json:
        terminal.write_line(msgspec.json.encode(Found(source=request.source, models=tuple(rows))))
    elif rows:
        terminal.stdout().print(tables(rows))
    if picture.missing and picture.models:
        terminal.say_error(
            f"of {', '.join(picture.missing)} nothing was heard", f"known are {', '.join(picture.models)}"
        )
        return NOTHING_HEARD
    if not picture.models:
        terminal.say_error(f"nothing was heard within {request.patience:g} s", _advice(request))
        return NOTHING_HEARD
    return 0


def _advice(request: InspectRequest) -> str:
    if not request.over_nats:
        return "discovery's COPYDESK_EDS_KUBE_... say where it is and what to look for; --wait gives it more time"
    if request.models:
        return "without --model, every model that is published is shown"
    return "is a discovery running that publishes here? (copydesk up, or python -m copydesk.eds)"


async def _watch(
    request: InspectRequest, origin: Origin, picture: Picture, news: asyncio.Event, show: Show
) -> None:
    """Show every change, for ever."""
    loop = asyncio.get_running_loop()
    looked_at, trouble = loop.time() - LOOK_S, ""
    while True:
        if request.service is not None and loop.time() >= looked_at + LOOK_S:
            trouble = await _look(request.service, picture)
            looked_at = loop.time()
        unheard = "" if origin.connected else f"{request.source} cannot be heard; this is the last that was"
        show(picture, unheard or trouble)
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await news.wait()
        news.clear()


async def _look(url: str, picture: Picture) -> str:
    """Ask what is held back; return what is wrong if nothing is to be had."""
    try:
        await _hold(url, picture)
    except OriginError as error:
        return error.problem
    return ""


async def _hold(url: str, picture: Picture) -> None:
    from copydesk.cli.discovery.replica import held_back

    picture.hold(await held_back(url))


def _json_lines(picture: Picture, _note: str) -> None:
    for rows in picture.rows(time.time(), picture.changes()):
        terminal.write_line(msgspec.json.encode(rows))


class _Screen:
    """Tables that are drawn again when something changed, and only then; on no terminal one below the other."""

    def __init__(self, source: str) -> None:
        self._waiting = f"listening to {source}; nothing was heard yet"
        self._note: str | None = None
        self._console = terminal.stdout()
        self._live = Live(console=self._console, auto_refresh=False)

    def __enter__(self) -> _Screen:
        """Take the terminal."""
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Give it back."""
        if self._console.is_terminal:
            self._live.stop()

    def show(self, picture: Picture, note: str) -> None:
        """Draw what is new, if anything is."""
        note = note or ("" if picture.models else self._waiting)
        if not picture.changes() and note == self._note:
            return
        self._note = note
        shown = tables(picture.rows(time.time()), note=note)
        if self._console.is_terminal:
            self._live.update(shown, refresh=True)
        else:
            self._console.print(shown)
