"""A child of the supervisor: how it is started, and how it is made to end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from copydesk.inference.pod.lifecycle import Patience


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """What the supervisor needs to know of a child; `socket` is where it answers pings.

    `python` is the interpreter that runs it: the supervisor's own, mostly.
    """

    name: str
    arguments: tuple[str, ...]
    socket: str
    patience: Patience
    environment: Mapping[str, str] = field(default_factory=dict)
    inherited: tuple[int, ...] = ()
    python: str = sys.executable


async def start(spec: ChildSpec) -> asyncio.subprocess.Process:
    """Start the child, in a session of its own, so that a terminal's Ctrl-C reaches the supervisor alone.

    The child itself asks the kernel to die with its parent, and checks the parent that is named to it.
    """
    return await asyncio.create_subprocess_exec(
        spec.python,
        "-m",
        "copydesk.inference",
        *spec.arguments,
        f"--parent={os.getpid()}",
        env={**os.environ, **spec.environment},
        pass_fds=spec.inherited,
        stdin=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )


def ask_to_end(process: asyncio.subprocess.Process) -> None:
    """Send SIGTERM; a process that has ended is left alone."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()


def kill(process: asyncio.subprocess.Process) -> None:
    """Kill the child and whatever it has started; a process that has ended is left alone."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
