"""`copydesk model rollout`: replace one version of a model by another, step by step, and back if it is worse."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import time
from dataclasses import dataclass, replace

import msgspec
from rich.live import Live

from copydesk.cli import terminal
from copydesk.cli.discovery.nats_origin import begin, find_nats, let_in
from copydesk.cli.discovery.origin import OriginError
from copydesk.cli.rollout.controller import Controller, Ending, Wanted
from copydesk.cli.rollout.roster import VersionError, digest_of
from copydesk.cli.rollout.status import RolloutStatus, agreement_line, headline, picture
from copydesk.common.messages import InvalidNameError, subject_token
from copydesk.common.telemetry import configure_logging

BAD_INPUT = 2
ROLLED_BACK = 1
INTERRUPTED = 130
SAY_SECONDS = 10.0
"""How often a line comes where there is no terminal, if nothing changes."""

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class RolloutRequest:
    """What was asked for on the command line."""

    wanted: Wanted
    nats_url: str | None
    as_json: bool


def rollout(request: RolloutRequest) -> int:
    """Run it; return the exit code."""
    configure_logging("rollout", level="error")
    try:
        if request.wanted.model is not None:
            subject_token(request.wanted.model)
        ending = asyncio.run(_run(request))
    except InvalidNameError as error:
        terminal.say_error(f"--model: {error}")
        return BAD_INPUT
    except VersionError as error:
        terminal.say_error(str(error), error.hint)
        return BAD_INPUT
    except OriginError as error:
        terminal.say_error(error.problem, error.hint)
        return BAD_INPUT
    return _explain(ending, request)


async def _run(request: RolloutRequest) -> Ending:
    wanted = _with_digests(request.wanted)
    url, token = find_nats(request.nats_url, os.environ)
    bus = await begin(url, token, "rollout")
    show = _JsonShow() if request.as_json else _TableShow(request.wanted.terms.slo_ms)
    try:
        await let_in(bus, url, token)
        name = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"
        controller = Controller(bus, wanted, show.show, name=name)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, controller.stop, f"{signal.Signals(number).name} came")
        return await controller.run()
    finally:
        show.close()
        await bus.close()


def _with_digests(wanted: Wanted) -> Wanted:
    """Read the digests of directories and profiles; raises `VersionError`."""
    baseline = None if wanted.baseline is None else digest_of(wanted.baseline)
    return replace(wanted, candidate=digest_of(wanted.candidate), baseline=baseline)


def _explain(ending: Ending, request: RolloutRequest) -> int:
    console = terminal.stderr()
    match ending:
        case Ending.FINISHED:
            console.print(
                "finished: the candidate answers everything. Remove the baseline's pods now: a gateway that "
                "starts while both versions run uses both. A local fleet: end it, and start it with the candidate "
                "as --profile or --model.",
                soft_wrap=True,
            )
            return 0
        case Ending.ROLLED_BACK:
            console.print("rolled back: the baseline answers everything.", soft_wrap=True)
            return ROLLED_BACK
        case Ending.UNHEARD:
            console.print(
                "not every gateway has said that the candidate answers everything: one that has not heard so goes "
                f"back to the baseline in {request.wanted.terms.expires_after_s:g} s. Begin the rollout again.",
                soft_wrap=True,
            )
            return ROLLED_BACK
        case Ending.TAKEN_OVER:
            console.print("another controller has taken over; this one says nothing more.", soft_wrap=True)
            return ROLLED_BACK
    console.print(
        f"left as it is: gateways go back to the baseline in {request.wanted.terms.expires_after_s:g} s unless it "
        "is taken over with --resume.",
        soft_wrap=True,
    )
    return INTERRUPTED


class _JsonShow:
    """One object a line on standard output."""

    def show(self, status: RolloutStatus) -> None:
        """Write it."""
        terminal.write_line(_encode(status))

    def close(self) -> None:
        """Nothing is open."""


class _TableShow:
    """A table that stays where it is on a terminal; elsewhere a line for each change, and one now and then."""

    def __init__(self, slo_ms: float) -> None:
        self._slo_ms = slo_ms
        self._console = terminal.stdout()
        self._live = Live(console=self._console, auto_refresh=False) if self._console.is_terminal else None
        self._said_at = 0.0
        if self._live is not None:
            self._live.start()

    def show(self, status: RolloutStatus) -> None:
        """Show it."""
        if self._live is not None:
            self._live.update(picture(status, self._slo_ms), refresh=True)
            return
        if status.event == "tick" and status.time - self._said_at < SAY_SECONDS:
            return
        self._said_at = status.time
        self._console.print(headline(status), soft_wrap=True, highlight=False, markup=False)
        self._console.print(f"  {agreement_line(status)}", soft_wrap=True, highlight=False, markup=False)

    def close(self) -> None:
        """Leave the last table where it is."""
        if self._live is not None:
            self._live.stop()
