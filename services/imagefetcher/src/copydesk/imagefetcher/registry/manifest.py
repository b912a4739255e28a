"""Manifests and indexes of the OCI image specification 1.1, and docker's older forms of both."""

from __future__ import annotations

import re
from typing import Final, TypeVar

import msgspec

from copydesk.imagefetcher.index import Platform
from copydesk.imagefetcher.registry.errors import AnswerError

OCI_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX: Final = "application/vnd.oci.image.index.v1+json"
DOCKER_MANIFEST: Final = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_INDEX: Final = "application/vnd.docker.distribution.manifest.list.v2+json"
EMPTY_MEDIA_TYPE: Final = "application/vnd.oci.empty.v1+json"
EMPTY_BLOB: Final = b"{}"
MANIFESTS: Final = (OCI_MANIFEST, DOCKER_MANIFEST)
INDEXES: Final = (OCI_INDEX, DOCKER_INDEX)
MAX_MANIFEST_BYTES: Final = 4 << 20
"""What registries must take, and what is read, at most (distribution specification, "Pushing manifests")."""
_T = TypeVar("_T")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class Descriptor(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What names a blob or manifest: type, digest and size in bytes."""

    media_type: str
    digest: str
    size: int
    platform: Platform | None = None
    artifact_type: str = ""
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    urls: tuple[str, ...] = ()


class Manifest(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One image, or one artifact."""

    schema_version: int
    config: Descriptor
    layers: tuple[Descriptor, ...]
    media_type: str = ""
    artifact_type: str = ""
    subject: Descriptor | None = None
    annotations: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The type of an artifact: its own field, or that of its configuration, as before version 1.1."""
        return self.artifact_type or self.config.media_type


class Index(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Several manifests: one image for several platforms, or the artifacts of one image."""

    schema_version: int
    manifests: tuple[Descriptor, ...]
    media_type: str = ""
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class _RootFs(msgspec.Struct):
    diff_ids: tuple[str, ...] = ()


class Config(msgspec.Struct):
    """What an image's configuration says that concerns its files."""

    architecture: str = ""
    os: str = ""
    variant: str = ""
    rootfs: _RootFs = msgspec.field(default_factory=_RootFs)

    @property
    def platform(self) -> Platform:
        """What the image runs on."""
        return Platform(self.os, self.architecture, self.variant)


class _Typed(msgspec.Struct, rename="camel"):
    media_type: str = ""


def media_type_of(raw: bytes, header: str) -> str:
    """The type of a manifest: what it says itself, or else what the registry says."""
    try:
        own = msgspec.json.decode(raw, type=_Typed).media_type
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
        own = ""
    return own or header.partition(";")[0].strip()


def decode_manifest(host: str, raw: bytes) -> Manifest:
    """Raises AnswerError for what is no manifest."""
    manifest = _decode(host, raw, Manifest)
    for descriptor in (manifest.config, *manifest.layers, *([manifest.subject] if manifest.subject else [])):
        check_descriptor(host, descriptor)
    return manifest


def decode_index(host: str, raw: bytes) -> Index:
    """Raises AnswerError for what is no index."""
    index = _decode(host, raw, Index)
    for descriptor in index.manifests:
        check_descriptor(host, descriptor)
    return index


def decode_config(host: str, raw: bytes) -> Config:
    """Raises AnswerError for what is no image's configuration."""
    return _decode(host, raw, Config)


def encode_json(value: Manifest | Index) -> bytes:
    """The bytes to push: equal values give equal bytes."""
    return msgspec.json.encode(value)


def check_descriptor(host: str, descriptor: Descriptor) -> None:
    """Raises AnswerError for a digest of another kind than sha256, or a size that cannot be."""
    if not _DIGEST.fullmatch(descriptor.digest):
        raise AnswerError(host, f"has a manifest that names {descriptor.digest[:80]!r}, which is no sha256 digest")
    if not 0 <= descriptor.size < 1 << 50:
        raise AnswerError(host, f"has a manifest that names a blob of {descriptor.size} bytes")


def _decode(host: str, raw: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
        raise AnswerError(host, f"has a {kind.__name__.lower()} that is none: {error}") from error
