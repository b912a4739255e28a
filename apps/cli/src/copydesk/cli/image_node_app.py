"""What `copydesk image` says to this node, beside what `image_app` says to registries."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from copydesk.cli.image_app import Json, image_app

__all__ = ["image_app"]


def _absolute(value: Path) -> Path:
    if not value.is_absolute():
        raise typer.BadParameter(f"{value} is relative; services start elsewhere, say it from / on")
    return value


RunDir = Annotated[
    Path,
    typer.Option(metavar="DIR", envvar="COPYDESK_IMAGEFETCHER_RUN_DIR", help="The daemon's folder of sockets."),
]


@image_app.command()
def install(
    root: Annotated[
        Path, typer.Option(metavar="DIR", help="Write below this folder, as for another system.")
    ] = Path("/"),
    state_dir: Annotated[
        Path, typer.Option(metavar="DIR", callback=_absolute, help="Where cached sectors go.")
    ] = Path("/var/lib/copydesk/imagefetcher"),
    run_dir: Annotated[
        Path, typer.Option(metavar="DIR", callback=_absolute, help="The daemon's folder of sockets.")
    ] = Path("/run/copydesk/imagefetcher"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be written.")] = False,
    json: Json = False,
) -> None:
    """Have this node's containerd load converted images lazily.

    Writes two systemd units, their settings and a drop-in of containerd, and says what
    is left to do. A configuration of containerd that is there already stays as it is.
    """
    from copydesk.cli.commands.image_install import InstallRequest, run_install

    raise typer.Exit(run_install(InstallRequest(root, state_dir, run_dir, dry_run, json)))


@image_app.command()
def status(run_dir: RunDir = Path("/run/copydesk/imagefetcher"), json: Json = False) -> None:
    """Show what this node's image fetcher has: images, the share of each that is cached, sources."""
    from copydesk.cli.commands.image_status import StatusRequest, run_status

    raise typer.Exit(run_status(StatusRequest(run_dir, json)))
