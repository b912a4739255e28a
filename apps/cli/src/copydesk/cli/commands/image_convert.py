"""`copydesk image convert`: an artifact beside the image, for nodes that fetch what is read."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from rich.markup import escape

from copydesk.cli import terminal
from copydesk.cli.commands.image_request import Access, Bars, run, size_text, write_json
from copydesk.imagefetcher.convert.conversion import Converted, convert_images
from copydesk.imagefetcher.copying import copy_image
from copydesk.imagefetcher.registry.image import resolve
from copydesk.imagefetcher.registry.reference import Reference
from copydesk.imagefetcher.registry.repository import Repository
from copydesk.imagefetcher.trace import Trace, TraceFormatError, decode_trace


@dataclass(frozen=True, slots=True)
class ConvertRequest:
    """What was asked for on the command line."""

    ref: str
    to: str | None
    trace: Path | None
    platforms: tuple[str, ...]
    work_dir: Path | None
    access: Access
    as_json: bool


@dataclass(frozen=True, slots=True)
class Report:
    """What `--json` prints: where the artifacts are, and each of them."""

    reference: str
    platforms: tuple[Converted, ...]


def run_convert(request: ConvertRequest) -> int:
    """Converts; returns the exit code."""
    return run(lambda: _convert(request))


async def _convert(request: ConvertRequest) -> int:
    source_reference = Reference.parse(request.ref)
    target_reference = Reference.parse(request.to) if request.to else source_reference
    trace = _read_trace(request.trace) if request.trace else None
    options = request.access.options()
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(Repository(source_reference, options))
        target = await stack.enter_async_context(Repository(target_reference, options))
        images = await resolve(source, request.platforms)
        bars = stack.enter_context(Bars())
        if target_reference != source_reference:
            await copy_image(source, target, artifacts=False, work_dir=request.work_dir)
        done = await convert_images(source, target, images.images, trace, request.work_dir, bars.report)
    if request.as_json:
        write_json(Report(str(target_reference), tuple(done)))
    else:
        _show(str(target_reference), done)
    return 0


def _read_trace(path: Path) -> Trace:
    try:
        return decode_trace(path.read_bytes())
    except OSError as error:
        raise TraceFormatError(f"{path}: {error.strerror}") from error


def _show(reference: str, done: list[Converted]) -> None:
    out = terminal.stdout()
    for converted in done:
        what = "converted" if converted.is_new else "converted before, nothing to push"
        out.print(f"[bold]{escape(reference)}[/] {converted.platform}: {what}")
        out.print(f"  artifact  {converted.artifact}", soft_wrap=True)
        sizes = f"metadata {size_text(converted.metadata_size)}, data {size_text(converted.data_size)}"
        out.print(f"  size      {sizes}; layers {size_text(converted.layers_size)}")
        count = f"{converted.sectors} sectors, {size_text(converted.device_size)} plain"
        out.print(f"  device    {count}; {converted.files:,} files")
        if converted.prefetch:
            out.print(f"  start-up  {size_text(converted.hot_size)} in {converted.prefetch} sectors")
        if converted.dropped_xattrs:
            out.print(f"  dropped   {converted.dropped_xattrs} extended attributes of unknown kinds")
