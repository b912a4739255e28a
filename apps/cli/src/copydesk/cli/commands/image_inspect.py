"""`copydesk image inspect`: an image's platforms, and what was converted of each."""

from __future__ import annotations

from dataclasses import dataclass

from rich.markup import escape

from copydesk.cli import terminal
from copydesk.cli.commands.image_request import Access, run, size_text, write_json
from copydesk.imagefetcher.artifact import find_artifact, read_index
from copydesk.imagefetcher.index import ImageIndex, Platform
from copydesk.imagefetcher.registry.image import Image, resolve
from copydesk.imagefetcher.registry.reference import Reference
from copydesk.imagefetcher.registry.repository import Repository


@dataclass(frozen=True, slots=True)
class InspectRequest:
    """What was asked for on the command line."""

    ref: str
    platforms: tuple[str, ...]
    access: Access
    as_json: bool


@dataclass(frozen=True, slots=True)
class ArtifactPicture:
    """What was converted; sizes in bytes."""

    digest: str
    revision: int
    metadata_size: int
    data_size: int
    device_size: int
    sector_size: int
    sectors: int
    prefetch: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PlatformPicture:
    """One platform's image: its manifest, its layers, and its artifact if there is one."""

    platform: Platform
    digest: str
    layers: tuple[str, ...]
    layers_size: int
    artifact: ArtifactPicture | None


@dataclass(frozen=True, slots=True)
class Picture:
    """What `--json` prints."""

    reference: str
    digest: str
    media_type: str
    platforms: tuple[PlatformPicture, ...]


def run_inspect(request: InspectRequest) -> int:
    """Shows the image; returns the exit code."""
    return run(lambda: _inspect(request))


async def _inspect(request: InspectRequest) -> int:
    reference = Reference.parse(request.ref)
    async with Repository(reference, request.access.options()) as repository:
        images = await resolve(repository, request.platforms)
        pictures = [await _picture(repository, image) for image in images.images]
    picture = Picture(str(reference), images.top.digest, images.top.media_type, tuple(pictures))
    if request.as_json:
        write_json(picture)
    else:
        _show(picture)
    return 0


async def _picture(repository: Repository, image: Image) -> PlatformPicture:
    layers = image.manifest.layers
    artifact = await find_artifact(repository, image.fetched.digest)
    own = None
    if artifact is not None:
        index = await read_index(repository, artifact)
        own = _artifact_picture(artifact.digest, artifact.revision, index)
    return PlatformPicture(
        image.platform,
        image.fetched.digest,
        tuple(layer.digest for layer in layers),
        sum(layer.size for layer in layers),
        own,
    )


def _artifact_picture(digest: str, revision: int, index: ImageIndex) -> ArtifactPicture:
    data = index.data
    return ArtifactPicture(
        digest,
        revision,
        index.metadata.size,
        data.size,
        data.device_size,
        data.sector_size,
        len(data.sectors),
        index.prefetch,
    )


def _show(picture: Picture) -> None:
    out = terminal.stdout()
    out.print(f"[bold]{escape(picture.reference)}[/] {picture.digest}", soft_wrap=True)
    for own in picture.platforms:
        out.print(
            f"{own.platform}: {len(own.layers)} layers, {size_text(own.layers_size)}; {own.digest}", soft_wrap=True
        )
        if own.artifact is None:
            out.print("  not converted; copydesk image convert does it")
            continue
        artifact = own.artifact
        out.print(f"  artifact  {artifact.digest}", soft_wrap=True)
        sizes = f"metadata {size_text(artifact.metadata_size)}, data {size_text(artifact.data_size)}"
        out.print(f"  size      {sizes}")
        sectors = f"{artifact.sectors} sectors of {size_text(artifact.sector_size)}"
        out.print(f"  device    {sectors}; {len(artifact.prefetch)} of them for the start-up")
