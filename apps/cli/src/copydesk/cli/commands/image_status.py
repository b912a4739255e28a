"""`copydesk image status`: what this node's image fetcher has, and does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.markup import escape

from copydesk.cli import terminal
from copydesk.cli.commands.image_request import run, size_text, write_json
from copydesk.imagefetcher.control.client import ControlClient
from copydesk.imagefetcher.control.messages import ImageStatus, NodeStatus
from copydesk.imagefetcher.paths import control_socket


@dataclass(frozen=True, slots=True)
class StatusRequest:
    """What was asked for on the command line."""

    run_dir: Path
    as_json: bool


def run_status(request: StatusRequest) -> int:
    """Shows the status; returns the exit code."""
    return run(lambda: _status(request))


async def _status(request: StatusRequest) -> int:
    status = ControlClient(control_socket(request.run_dir), timeout=10.0).status()
    if request.as_json:
        write_json(status)
    else:
        _show(status)
    return 0


def _show(status: NodeStatus) -> None:
    out = terminal.stdout()
    cache = status.cache
    holder = "" if status.holder else "; no holder: readers do not survive the daemon"
    out.print(f"[bold]{escape(status.node)}[/]: fetching {status.fetching} sectors{holder}", soft_wrap=True)
    out.print(
        f"cache: {size_text(cache.size)} of {size_text(cache.limit)}; {cache.evicted} evicted, "
        f"{cache.corrupt} corrupt, {cache.refused} without room",
        soft_wrap=True,
    )
    for image in status.images:
        _show_image(image)
    for target, problem in status.broken.items():
        out.print(f"[red]broken[/] {escape(target)}: {escape(problem)}", soft_wrap=True)


def _show_image(image: ImageStatus) -> None:
    out = terminal.stdout()
    share = 100.0 if not image.size else 100.0 * image.held_size / image.size
    out.print(f"{escape(image.reference)}", soft_wrap=True)
    out.print(f"  cached    {share:.0f} % of {size_text(image.size)}")
    out.print(
        f"  sources   {escape(', '.join(image.sources))}; {image.peers} peers with {image.peer_sectors} sectors",
        soft_wrap=True,
    )
    for target in image.mounts:
        out.print(f"  mounted   {escape(target)}", soft_wrap=True)
