"""How a Copydesk process begins and ends: with its parent, and on the first SIGTERM in an orderly way."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import os
import signal
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

from copydesk.common.errors import CopydeskError
from copydesk.common.telemetry import get_logger

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

_PR_SET_PDEATHSIG = 1  # linux/prctl.h

_log = get_logger(__name__)

T = TypeVar("T")


class ParentDeathError(CopydeskError):
    """The kernel refused to tie this process to its parent; `code` is the errno."""

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(f"prctl(PR_SET_PDEATHSIG) failed: {os.strerror(code)}")


def die_with_parent(parent: int | None = None, *, signum: signal.Signals = signal.SIGTERM) -> None:
    """Have the kernel send this process `signum` when its parent ends, however it ends.

    Pass the parent's process id if you can: a parent that was gone before this call is then noticed, and the
    signal is raised at once. Without it only a parent that goes during the call is noticed. Call it early in the
    child. Beware that the kernel means the parent's *thread*: start children from one that stays. Linux only;
    elsewhere it does nothing. Raises `ParentDeathError`.
    """
    if not sys.platform.startswith("linux"):
        return
    expected = os.getppid() if parent is None else parent
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signum), 0, 0, 0) != 0:
        raise ParentDeathError(ctypes.get_errno())
    if os.getppid() != expected:
        signal.raise_signal(signum)


async def run_until_signal(work: Coroutine[Any, Any, object] | None = None) -> signal.Signals | None:
    """Wait for SIGTERM or SIGINT and return it; with `work`, run that meanwhile, and cancel it on the signal.

    Returns when `work` has ended, with None if it ended by itself; what it raises is raised here. From the first
    signal on, a second one ends the process at once with status 128 + its number, also after this has returned, so
    that a shut-down that hangs can be cut short.
    """
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[signal.Signals] = loop.create_future()
    for signum in STOP_SIGNALS:
        loop.add_signal_handler(signum, _on_signal, stop, signum)
    if work is None:
        return await stop
    task = asyncio.create_task(work)
    either: set[asyncio.Future[Any]] = {task, stop}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not task.done():
            task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return stop.result() if stop.done() else None


def _on_signal(stop: asyncio.Future[signal.Signals], signum: signal.Signals) -> None:
    if stop.done():
        _log.warning("forced_exit", signal=signum.name)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(128 + signum)
    _log.info("stopping", signal=signum.name)
    stop.set_result(signum)


def signal_name(number: int) -> str:
    """Return the name of a signal, for people: `SIGKILL`, or `signal 63` for one that has none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def describe_exit(code: int) -> str:
    """Put the return code of a process into words."""
    if code >= 0:
        return f"exited with code {code}"
    return f"was killed by {signal_name(-code)}"


def settle_memory() -> None:
    """Call it once a process has loaded what it will keep: less memory, and shorter pauses.

    What loading has freed goes back to the system (glibc keeps it, mostly for nothing), and the garbage collector
    leaves alone what is there now.
    """
    gc.collect()
    gc.freeze()
    with contextlib.suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end on a uvloop event loop."""
    return uvloop.run(main)
