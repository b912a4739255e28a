"""`copydesk image verify`: proof that an artifact holds what its image does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.markup import escape

from copydesk.cli import terminal
from copydesk.cli.commands.image_request import FAILED, Access, Bars, run, size_text, write_json
from copydesk.imagefetcher.convert.verify import Verified, verify_image
from copydesk.imagefetcher.registry.image import resolve
from copydesk.imagefetcher.registry.reference import Reference
from copydesk.imagefetcher.registry.repository import Repository


@dataclass(frozen=True, slots=True)
class VerifyRequest:
    """What was asked for on the command line."""

    ref: str
    platforms: tuple[str, ...]
    work_dir: Path | None
    access: Access
    as_json: bool


@dataclass(frozen=True, slots=True)
class Report:
    """What `--json` prints: `equal` is True if every platform has an artifact and none differs."""

    reference: str
    equal: bool
    platforms: tuple[Verified, ...]
    not_converted: tuple[str, ...]


def run_verify(request: VerifyRequest) -> int:
    """Verifies; returns the exit code."""
    return run(lambda: _verify(request))


async def _verify(request: VerifyRequest) -> int:
    reference = Reference.parse(request.ref)
    verified: list[Verified] = []
    missing: list[str] = []
    async with Repository(reference, request.access.options()) as repository:
        images = await resolve(repository, request.platforms)
        with Bars() as bars:
            for image in images.images:
                found = await verify_image(repository, image, request.work_dir, bars.report)
                if found is None:
                    missing.append(str(image.platform))
                else:
                    verified.append(found)
    equal = not missing and not any(one.differences for one in verified)
    report = Report(str(reference), equal, tuple(verified), tuple(missing))
    if request.as_json:
        write_json(report)
    else:
        _show(report)
    return 0 if equal else FAILED


def _show(report: Report) -> None:
    out = terminal.stdout()
    for one in report.platforms:
        if not one.differences:
            proof = f"{one.names:,} names and {size_text(one.bytes_compared)} are the same"
            out.print(f"[green]equal[/] {escape(report.reference)} {one.platform}: {proof}", soft_wrap=True)
            continue
        out.print(f"[red]different[/] {escape(report.reference)} {one.platform}: {one.artifact}", soft_wrap=True)
        for difference in one.differences:
            text = f"  {difference.path}: {difference.what}: {difference.found}, expected {difference.expected}"
            out.print(escape(text), soft_wrap=True)
    for platform in report.not_converted:
        terminal.say_error(f"{report.reference} {platform} is not converted", "copydesk image convert does it")
