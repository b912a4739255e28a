"""`copydesk image install`: units and configuration with which a node's containerd loads images lazily."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from rich.markup import escape

from copydesk.cli import terminal
from copydesk.cli.commands.image_request import run, write_json
from copydesk.imagefetcher.installation import CONFIG, ENVIRONMENT, Choice, plan, read, write


@dataclass(frozen=True, slots=True)
class InstallRequest:
    """What was asked for on the command line."""

    root: Path
    state_dir: Path
    run_dir: Path
    dry_run: bool
    as_json: bool


@dataclass(frozen=True, slots=True)
class Installed:
    """What `--json` prints: files written (or that would be), and what is left to do."""

    files: tuple[str, ...]
    written: tuple[str, ...]
    left: tuple[str, ...]


def run_install(request: InstallRequest) -> int:
    """Installs; returns the exit code."""
    return run(lambda: _install(request))


async def _install(request: InstallRequest) -> int:
    choice = Choice(Path(sys.executable), request.state_dir, request.run_dir)
    planned = plan(choice, read(CONFIG, request.root), read(ENVIRONMENT, request.root))
    written = [] if request.dry_run else write(planned.files, request.root)
    if request.as_json:
        write_json(Installed(tuple(map(str, planned.files)), tuple(map(str, written)), planned.left))
        return 0
    out = terminal.stdout()
    for path, text in planned.files.items():
        if request.dry_run:
            out.print(f"[bold]{escape(str(path))}[/]\n{escape(text)}", soft_wrap=True)
        else:
            out.print(f"{'wrote' if path in written else 'kept'} {escape(str(path))}", soft_wrap=True)
    out.print("Left to do:")
    for step in planned.left:
        out.print(f"  {escape(step)}", soft_wrap=True)
    return 0
