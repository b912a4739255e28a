"""`copydesk image copy`: an image with its artifact, to another repository."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from copydesk.cli import terminal
from copydesk.cli.commands.image_request import Access, Bars, run, size_text, write_json
from copydesk.imagefetcher.copying import Copied, copy_image
from copydesk.imagefetcher.registry.reference import Reference
from copydesk.imagefetcher.registry.repository import Repository


@dataclass(frozen=True, slots=True)
class CopyRequest:
    """What was asked for on the command line."""

    ref: str
    to: str
    artifacts: bool
    work_dir: Path | None
    access: Access
    as_json: bool


def run_copy(request: CopyRequest) -> int:
    """Copies; returns the exit code."""
    return run(lambda: _copy(request))


async def _copy(request: CopyRequest) -> int:
    source_reference, target_reference = Reference.parse(request.ref), Reference.parse(request.to)
    options = request.access.options()
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(Repository(source_reference, options))
        target = await stack.enter_async_context(Repository(target_reference, options))
        bars = stack.enter_context(Bars())
        done = 0

        def progress(count: int) -> None:
            nonlocal done
            done += count
            bars.move("copy", done, done)

        copied = await copy_image(
            source, target, artifacts=request.artifacts, work_dir=request.work_dir, progress=progress
        )
    if request.as_json:
        write_json(copied)
    else:
        _show(str(target_reference), copied)
    return 0


def _show(reference: str, copied: Copied) -> None:
    parts = f"{copied.manifests} manifests, {copied.artifacts} artifacts, {copied.blobs} blobs"
    terminal.stdout().print(f"{reference}: {copied.digest}", soft_wrap=True)
    terminal.stdout().print(f"  {parts}; sent {size_text(copied.sent)}")
