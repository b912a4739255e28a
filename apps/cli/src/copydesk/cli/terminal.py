"""How the command speaks: results on stdout, everything else on stderr, an error in one line with what to do."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from rich.console import Console
from rich.markup import escape


class LastingConsole(Console):
    """A console for a process that must outlive its reader: rich's own exits on a broken pipe."""

    def on_broken_pipe(self) -> None:
        """Lose what was to be written, and go on."""


def stderr() -> Console:
    """The console for progress and errors."""
    return Console(stderr=True, highlight=False)


def stdout() -> Console:
    """The console for what a person asked for."""
    return Console(highlight=False)


def say_error(message: str, hint: str = "") -> None:
    """Write one line about what went wrong, and what to do about it."""
    line = f"[bold red]error:[/] {escape(message)}"
    joint = ". " if hint[:1].isupper() else "; "
    stderr().print(f"{line}{joint}[dim]{escape(hint)}[/]" if hint else line, soft_wrap=True)


def write_line(line: bytes) -> None:
    """Write one line of data to stdout as it is."""
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


def own_name() -> str:
    """Say how to call this command from here: by its name, or by its path when that is on no search path."""
    if shutil.which("copydesk"):
        return "copydesk"
    beside = Path(sys.executable).parent / "copydesk"
    return str(beside.relative_to(Path.cwd()) if beside.is_relative_to(Path.cwd()) else beside)
