"""A process tree that can be frozen while others are measured."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import psutil

from copydesk.cli.bench.guard import kill_sessions
from copydesk.cli.fleet.child import tail
from copydesk.common.errors import CopydeskError
from copydesk.common.process import die_with_parent

_TAIL_LINES = 20


class StartError(CopydeskError):
    """An engine that did not start or did not survive: why, and the end of its log."""

    def __init__(self, name: str, reason: str, log: Sequence[str] = ()) -> None:
        self.name = name
        self.reason = reason
        self.log = tuple(log)
        super().__init__(f"{name}: {reason}")


class EngineProcess:
    """A program and all its descendants.

    It has a session of its own, so that a terminal's Ctrl-C reaches only the command, and the kernel kills it when
    the command dies, in whatever way. Its output goes to `log`; what it writes to standard output too, unless
    `piped`, when both its ends are the caller's.
    """

    def __init__(
        self, name: str, argv: Sequence[str], environ: Mapping[str, str], log: Path, *, piped: bool = False
    ) -> None:
        self.name = name
        self.log = log
        pipe = subprocess.PIPE if piped else None
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                argv,
                stdin=pipe or subprocess.DEVNULL,
                stdout=pipe or output,
                stderr=output,
                env=environ,
                start_new_session=True,
                preexec_fn=partial(die_with_parent, os.getpid(), signum=signal.SIGKILL),
            )
        self.stdin = self._process.stdin
        self.stdout = self._process.stdout

    @property
    def pid(self) -> int:
        """The program's process id, which is also that of its session."""
        return self._process.pid

    def require_alive(self) -> None:
        """Raise `StartError` when the program has ended."""
        code = self._process.poll()
        if code is not None:
            raise self.failure(f"ended with code {code}")

    def failure(self, reason: str) -> StartError:
        """Return an error with the end of the log."""
        return StartError(self.name, reason, tail(self.log, _TAIL_LINES))

    def freeze(self) -> None:
        """Stop every process of the tree: it takes no time on any core until `thaw`.

        Parents first, so that none watches its children stop and draws conclusions.
        """
        for process in self._tree():
            _send(process, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let them go on, children first."""
        for process in reversed(self._tree()):
            _send(process, signal.SIGCONT)

    def resident_bytes(self) -> int:
        """Return the memory of the tree, pages that its processes share counted once (PSS)."""
        total = 0
        for process in self._tree():
            with contextlib.suppress(psutil.Error):
                total += process.memory_full_info().pss
        return total

    def kill(self) -> None:
        """End the whole tree, also what has lost its parent, and wait for the program."""
        tree = self._tree()
        for process in tree:
            _send(process, signal.SIGKILL)
        kill_sessions({self.pid})
        for stream in (self.stdin, self.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._process.wait()
        psutil.wait_procs(tree, timeout=5)

    def _tree(self) -> list[psutil.Process]:
        try:
            root = psutil.Process(self._process.pid)
            return [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []


def _send(process: psutil.Process, number: signal.Signals) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)
