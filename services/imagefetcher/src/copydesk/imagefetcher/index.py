"""The index of a converted image: what its artifact holds and how each sector is fetched and checked.

The artifact is an OCI image manifest of `ARTIFACT_TYPE` whose `subject` is the manifest of the original image
(for one platform) and whose layers are, in this order: the index (JSON), the metadata (an EROFS file system,
zstd) and the data (sectors, each compressed with zstd on its own, one after the other). The plain sectors one
after the other are the device that the metadata's chunks point to: sector `i` lies at byte `i * sector_size` of
it. All sectors are `sector_size` long, but the last, which may be shorter. docs/images.md is the specification.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

import msgspec

from copydesk.imagefetcher.errors import IndexFormatError, IndexVersionError

VERSION: Final = 1
ARTIFACT_TYPE: Final = "application/vnd.copydesk.image.v1"
INDEX_MEDIA_TYPE: Final = "application/vnd.copydesk.image.index.v1+json"
METADATA_MEDIA_TYPE: Final = "application/vnd.copydesk.image.metadata.v1.erofs+zstd"
DATA_MEDIA_TYPE: Final = "application/vnd.copydesk.image.data.v1+zstd"
SECTOR_SIZE: Final = 4 << 20
MAX_SECTOR_SIZE: Final = 16 << 20
"""A node holds a few dozen sectors in memory, packed and plain: larger ones could take all of it."""
BLOCK_SIZE: Final = 4096
MAX_INDEX_BYTES: Final = 64 << 20
"""A larger index is refused unread: at some 270 bytes a sector this is the index of 1 TiB."""
MAX_METADATA_BYTES: Final = 4 << 30
MAX_SECTORS: Final = (1 << 44) // SECTOR_SIZE
"""EROFS counts the blocks of a device with 32 bits: 16 TiB."""

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class Platform(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an image runs on, in the words of the OCI image index (Go's GOOS and GOARCH)."""

    os: str
    architecture: str
    variant: str = ""

    def __str__(self) -> str:
        return "/".join(part for part in (self.os, self.architecture, self.variant) if part)


class Original(msgspec.Struct, frozen=True):
    """The manifest of the image that was converted: one platform's, not the index of all of them."""

    media_type: str
    digest: str
    size: int
    config_digest: str


class Metadata(msgspec.Struct, frozen=True):
    """The EROFS metadata: as a blob in the registry (zstd), and as the file to be mounted (plain)."""

    digest: str
    size: int
    plain_digest: str
    plain_size: int


class Sector(msgspec.Struct, frozen=True):
    """One sector: where its compressed bytes lie in the data blob, and what both forms must hash to.

    `digest` is of the compressed bytes, to be checked before they are decompressed; `plain_digest` of what a
    reader gets, to be checked whenever the sector is read back from a cache, and its name there. Lengths are in
    bytes.
    """

    offset: int
    length: int
    digest: str
    plain_length: int
    plain_digest: str


class Data(msgspec.Struct, frozen=True):
    """The data: the blob in the registry, and the device that its sectors make up; at least one block."""

    digest: str
    size: int
    device_size: int
    sector_size: int
    sectors: tuple[Sector, ...]

    def sector_of(self, offset: int) -> int:
        """The number of the sector that holds byte `offset` of the device."""
        return offset // self.sector_size


class ImageIndex(msgspec.Struct, frozen=True):
    """Everything that a node must know to mount an image and fetch it by sectors.

    `prefetch` lists the sectors that a recorded start-up read, in the order of their first read; it is empty
    where the image was converted without a trace.
    """

    version: int
    image: Original
    platform: Platform
    metadata: Metadata
    data: Data
    prefetch: tuple[int, ...] = ()


def encode(index: ImageIndex) -> bytes:
    """The index as JSON, the same bytes every time; raises IndexFormatError for one that decode refuses."""
    validate(index)
    return msgspec.json.encode(index)


def decode(raw: bytes) -> ImageIndex:
    """The index in `raw`, fit for use.

    Raises IndexVersionError for another version, IndexFormatError for anything else that is wrong.
    """
    if len(raw) > MAX_INDEX_BYTES:
        raise IndexFormatError("index", f"has {len(raw)} bytes, at most {MAX_INDEX_BYTES} are read")
    _check_version(raw)
    try:
        index = msgspec.json.decode(raw, type=ImageIndex)
    except (msgspec.ValidationError, msgspec.DecodeError, RecursionError) as error:
        raise IndexFormatError("index", str(error)) from error
    validate(index)
    return index


def validate(index: ImageIndex) -> None:
    """Raises IndexFormatError unless every part of the index agrees with every other."""
    if index.version != VERSION:
        raise IndexVersionError(index.version, VERSION)
    _check_digest("image.digest", index.image.digest)
    _check_digest("image.config_digest", index.image.config_digest)
    _check_range("image.size", index.image.size, 1, 1 << 40)
    _check_metadata(index.metadata)
    _check_data(index.data)
    _check_prefetch(index)


class _Versioned(msgspec.Struct):
    version: int


def _check_version(raw: bytes) -> None:
    try:
        version = msgspec.json.decode(raw, type=_Versioned).version
    except (msgspec.ValidationError, msgspec.DecodeError, RecursionError) as error:
        raise IndexFormatError("version", str(error)) from error
    if version != VERSION:
        raise IndexVersionError(version, VERSION)


def _check_metadata(metadata: Metadata) -> None:
    _check_digest("metadata.digest", metadata.digest)
    _check_digest("metadata.plain_digest", metadata.plain_digest)
    _check_range("metadata.size", metadata.size, 1, MAX_METADATA_BYTES)
    _check_range("metadata.plain_size", metadata.plain_size, BLOCK_SIZE, MAX_METADATA_BYTES)
    if metadata.plain_size % BLOCK_SIZE:
        raise IndexFormatError("metadata.plain_size", f"is no multiple of {BLOCK_SIZE}")


def _check_data(data: Data) -> None:
    _check_digest("data.digest", data.digest)
    if data.sector_size.bit_count() != 1 or not 64 << 10 <= data.sector_size <= MAX_SECTOR_SIZE:
        raise IndexFormatError("data.sector_size", "is no power of two from 64 KiB to 16 MiB")
    _check_range("data.sectors", len(data.sectors), 1, MAX_SECTORS)
    for number, sector in enumerate(data.sectors):
        _check_sector(f"data.sectors[{number}]", sector, data.sector_size)
    for number, (sector, following) in enumerate(pairwise(data.sectors)):
        if sector.plain_length != data.sector_size:
            raise IndexFormatError(f"data.sectors[{number}].plain_length", "only the last sector may be shorter")
        if following.offset != sector.offset + sector.length:
            raise IndexFormatError(f"data.sectors[{number + 1}].offset", "does not follow the sector before")
    if data.sectors[0].offset != 0:
        raise IndexFormatError("data.sectors[0].offset", "is not 0")
    if data.size != sum(sector.length for sector in data.sectors):
        raise IndexFormatError("data.size", "is not the sum of the sectors' lengths")
    if data.device_size != sum(sector.plain_length for sector in data.sectors):
        raise IndexFormatError("data.device_size", "is not the sum of the sectors' plain lengths")


def _check_sector(name: str, sector: Sector, sector_size: int) -> None:
    _check_digest(f"{name}.digest", sector.digest)
    _check_digest(f"{name}.plain_digest", sector.plain_digest)
    _check_range(f"{name}.plain_length", sector.plain_length, BLOCK_SIZE, sector_size)
    if sector.plain_length % BLOCK_SIZE:
        raise IndexFormatError(f"{name}.plain_length", f"is no multiple of {BLOCK_SIZE}")
    # zstd adds at most this to bytes that do not compress (ZSTD_COMPRESSBOUND, rounded up).
    _check_range(f"{name}.length", sector.length, 1, sector.plain_length + sector.plain_length // 128 + 512)


def _check_prefetch(index: ImageIndex) -> None:
    count = len(index.data.sectors)
    if len(set(index.prefetch)) != len(index.prefetch):
        raise IndexFormatError("prefetch", "names a sector twice")
    if any(not 0 <= number < count for number in index.prefetch):
        raise IndexFormatError("prefetch", f"names a sector that is not one of the {count}")


def _check_digest(field: str, value: str) -> None:
    if not _DIGEST.fullmatch(value):
        raise IndexFormatError(field, f"{value[:80]!r} is no sha256 digest")


def _check_range(field: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise IndexFormatError(field, f"is {value}, expected {least} to {most}")
