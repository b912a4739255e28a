"""When a start-up is over: the command ended, wrote its first output, answers, or time is up."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import sys
from collections.abc import Awaitable
from dataclasses import dataclass

import httpx2

POLL_S = 0.05
_PIECE = 1 << 16


class Ending(enum.StrEnum):
    """Why a recording ended."""

    EXIT = "exit"
    OUTPUT = "output"
    READY = "ready"
    SECONDS = "seconds"
    INTERRUPT = "interrupt"


@dataclass(frozen=True, slots=True)
class Until:
    """What a recording waits for; whatever comes first ends it, and the end of the command in any case.

    `output`: the first byte on stdout or stderr. `ready_url`: an answer of 200 to 299 there. `seconds`: so long.
    """

    output: bool = False
    ready_url: str = ""
    seconds: float | None = None


async def wait_for_ending(
    until: Until, exited: Awaitable[object], wrote: asyncio.Event, interrupted: asyncio.Event
) -> Ending:
    """The first reason to end that comes true."""
    waiting: dict[asyncio.Task[object], Ending] = {}

    def add(work: Awaitable[object], ending: Ending) -> None:
        waiting[asyncio.ensure_future(_whole(work))] = ending

    add(exited, Ending.EXIT)
    add(interrupted.wait(), Ending.INTERRUPT)
    if until.output:
        add(wrote.wait(), Ending.OUTPUT)
    if until.ready_url:
        add(_answers(until.ready_url), Ending.READY)
    if until.seconds is not None:
        add(asyncio.sleep(until.seconds), Ending.SECONDS)
    try:
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        return next(ending for task, ending in waiting.items() if task in done)
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def pass_on(source: asyncio.StreamReader, wrote: asyncio.Event) -> None:
    """Show on stderr what the command says, and note that it said something."""
    while piece := await source.read(_PIECE):
        wrote.set()
        with contextlib.suppress(OSError):
            sys.stderr.buffer.write(piece)
            sys.stderr.buffer.flush()


async def _whole(work: Awaitable[object]) -> object:
    return await work


async def _answers(url: str) -> None:
    async with httpx2.AsyncClient(timeout=2.0, trust_env=False) as client:
        while True:
            with contextlib.suppress(httpx2.HTTPError):
                if (await client.get(url)).is_success:
                    return
            await asyncio.sleep(POLL_S)
