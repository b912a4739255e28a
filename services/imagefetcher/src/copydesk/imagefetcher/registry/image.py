"""Images as a registry keeps them: one manifest, or an index of one for each platform."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from copydesk.imagefetcher.errors import ImageError
from copydesk.imagefetcher.index import Platform
from copydesk.imagefetcher.registry.manifest import (
    MANIFESTS,
    Config,
    Manifest,
    decode_config,
    decode_index,
    decode_manifest,
)
from copydesk.imagefetcher.registry.manifests import Fetched
from copydesk.imagefetcher.registry.repository import Repository

MAX_CONFIG_BYTES: Final = 16 << 20
MAX_PLATFORMS: Final = 64
CONFIGS: Final = ("application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json")
_LAYERS: Final = (
    "application/vnd.oci.image.layer.v1.tar",
    "application/vnd.docker.image.rootfs.diff.tar",
)


class NoImageError(ImageError):
    """Something in a registry that is not a container image of files for Linux; `name` names it."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Image:
    """One platform's image: its manifest as it came, and read."""

    fetched: Fetched
    manifest: Manifest
    config: Config

    @property
    def platform(self) -> Platform:
        """What it runs on."""
        return self.config.platform


@dataclass(frozen=True, slots=True)
class Images:
    """What a reference names: `top` is the manifest or index itself, `images` the images for Linux in it."""

    top: Fetched
    images: tuple[Image, ...]


async def resolve(repository: Repository, platforms: Sequence[str] = ()) -> Images:
    """The images that the repository's reference names, all or of some platforms (as in `linux/arm64`).

    Raises NoImageError if there is none, RegistryError.
    """
    top = await repository.manifest()
    name = str(repository.reference)
    images = [await _image(repository, fetched) for fetched in await _manifests(repository, top)]
    wanted = [image for image in images if not platforms or _is_wanted(image.platform, platforms)]
    if not wanted:
        there = ", ".join(str(image.platform) for image in images) or "none for Linux"
        raise NoImageError(name, f"has no image for {' or '.join(platforms) or 'Linux'}; there are: {there}")
    return Images(top, tuple(wanted))


async def _manifests(repository: Repository, top: Fetched) -> list[Fetched]:
    if top.media_type in MANIFESTS:
        return [top]
    if not top.is_index:
        raise NoImageError(str(repository.reference), f"is of type {top.media_type[:80]!r}, which is no image")
    entries = decode_index(repository.host, top.raw).manifests
    # Build tools list attestations for no platform beside the images.
    runnable = {
        entry.digest: None
        for entry in entries
        if entry.media_type in MANIFESTS and (entry.platform is None or entry.platform.os == "linux")
    }
    if len(runnable) > MAX_PLATFORMS:
        raise NoImageError(
            str(repository.reference), f"lists {len(runnable)} images, at most {MAX_PLATFORMS} are read"
        )
    return [await repository.manifests.get(digest) for digest in runnable]


async def _image(repository: Repository, fetched: Fetched) -> Image:
    manifest = decode_manifest(repository.host, fetched.raw)
    name = repository.reference.with_object(digest=fetched.digest)
    if manifest.config.media_type not in CONFIGS:
        raise NoImageError(str(name), f"holds {manifest.kind[:80]!r}, which is no container image")
    for layer in manifest.layers:
        kind = layer.media_type.partition("+")[0].removesuffix(".gzip")
        if kind not in _LAYERS or layer.media_type.endswith("+encrypted"):
            raise NoImageError(
                str(name), f"has a layer of type {layer.media_type[:80]!r}, which cannot be unpacked"
            )
    config = decode_config(repository.host, await repository.blobs.read(manifest.config, MAX_CONFIG_BYTES))
    if config.os != "linux":
        raise NoImageError(str(name), f"is for {config.platform}, only images for Linux can be converted")
    if len(config.rootfs.diff_ids) != len(manifest.layers):
        raise NoImageError(str(name), "has another number of layers than its configuration says")
    return Image(fetched, manifest, config)


def _is_wanted(platform: Platform, wanted: Sequence[str]) -> bool:
    whole = str(platform)
    return any(whole == want or whole.startswith(want + "/") for want in wanted)
