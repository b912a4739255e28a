"""The artifact of a converted image in its registry: found, read, checked, and written.

Where an image was converted more than once into a registry that keeps every artifact, the one of the highest
revision counts; a revision is an annotation of the artifact's manifest, one more than the highest before it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import zstandard

from copydesk.imagefetcher.errors import ImageError
from copydesk.imagefetcher.index import (
    ARTIFACT_TYPE,
    DATA_MEDIA_TYPE,
    INDEX_MEDIA_TYPE,
    MAX_INDEX_BYTES,
    METADATA_MEDIA_TYPE,
    ImageIndex,
    decode,
)
from copydesk.imagefetcher.registry.errors import AnswerError, DigestMismatchError, NotFoundError
from copydesk.imagefetcher.registry.manifest import (
    EMPTY_BLOB,
    EMPTY_MEDIA_TYPE,
    OCI_MANIFEST,
    Descriptor,
    Manifest,
    decode_manifest,
    encode_json,
)
from copydesk.imagefetcher.registry.repository import Repository

REVISION: Final = "io.copydesk.image.revision"
MAX_ARTIFACTS: Final = 64
"""How many artifacts of one image are looked at, those that are listed last: each is a request."""
_PIECE: Final = 1 << 20
_TYPES: Final = (INDEX_MEDIA_TYPE, METADATA_MEDIA_TYPE, DATA_MEDIA_TYPE)


class ArtifactError(ImageError):
    """An artifact that is not what it should be; `digest` names it, `reason` says what is wrong."""

    hint = "Convert the image again: copydesk image convert REF"

    def __init__(self, digest: str, reason: str) -> None:
        super().__init__(f"artifact {digest}: {reason}")
        self.digest = digest
        self.reason = reason


DAMAGED: Final = (ArtifactError, AnswerError, DigestMismatchError, NotFoundError)
"""What an artifact raises that is listed and not there, or not what it should be."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """An artifact's manifest with the bytes and the digest that it has."""

    digest: str
    raw: bytes
    manifest: Manifest

    @property
    def index(self) -> Descriptor:
        """The index's blob."""
        return self.manifest.layers[0]

    @property
    def revision(self) -> int:
        """How often the image was converted anew before."""
        told = self.manifest.annotations.get(REVISION, "0")
        return int(told) if told.isascii() and told.isdigit() and len(told) < 10 else 0

    @property
    def descriptor(self) -> Descriptor:
        """What names it in a list of referrers."""
        return Descriptor(
            OCI_MANIFEST,
            self.digest,
            len(self.raw),
            artifact_type=ARTIFACT_TYPE,
            annotations=self.manifest.annotations,
        )


async def find_artifact(repository: Repository, subject: str) -> Artifact | None:
    """The artifact of the manifest `subject`, None if it has none.

    Raises what is wrong with one that is damaged if there is no other (ArtifactError, or another of DAMAGED), and
    RegistryError if the registry cannot say.
    """
    found: list[Artifact] = []
    damage: ImageError | None = None
    for entry in (await repository.referrers.find(subject, ARTIFACT_TYPE))[-MAX_ARTIFACTS:]:
        try:
            found.append(await _read(repository, entry.digest))
        except DAMAGED as error:
            damage = error
    if damage is not None and not found:
        raise damage
    own = [
        artifact for artifact in found if artifact.manifest.subject and artifact.manifest.subject.digest == subject
    ]
    return max(own, key=lambda artifact: (artifact.revision, artifact.digest), default=None)


async def read_index(repository: Repository, artifact: Artifact) -> ImageIndex:
    """The index of an artifact, checked against its manifest; raises ArtifactError, IndexFormatError."""
    index = decode(await repository.blobs.read(artifact.index, MAX_INDEX_BYTES))
    named = [(layer.digest, layer.size) for layer in artifact.manifest.layers[1:]]
    if named != [(index.metadata.digest, index.metadata.size), (index.data.digest, index.data.size)]:
        raise ArtifactError(artifact.digest, "its index names other blobs than its manifest")
    if artifact.manifest.subject is None or artifact.manifest.subject.digest != index.image.digest:
        raise ArtifactError(artifact.digest, "its index is of another image than its manifest")
    return index


async def fetch_metadata(
    repository: Repository, index: ImageIndex, path: Path, progress: Callable[[int], None] = lambda _: None
) -> None:
    """Writes the plain metadata to `path`, ready to be mounted: checked both packed and plain.

    Raises ArtifactError, RegistryError. A file left behind by a failure is of no use.
    """
    metadata = index.metadata
    packed = path.with_name(path.name + ".packed")
    descriptor = Descriptor(METADATA_MEDIA_TYPE, metadata.digest, metadata.size)
    file = await asyncio.to_thread(packed.open, "wb")
    try:
        with file:
            await repository.blobs.download(descriptor, file, progress)
        await asyncio.to_thread(_unpack, packed, path, index)
    finally:
        await asyncio.to_thread(packed.unlink)


def artifact_manifest(index: ImageIndex, index_blob: bytes, revision: int) -> Artifact:
    """The manifest to push: the same index and revision give the same bytes."""
    layers = (
        Descriptor(INDEX_MEDIA_TYPE, _digest(index_blob), len(index_blob)),
        Descriptor(METADATA_MEDIA_TYPE, index.metadata.digest, index.metadata.size),
        Descriptor(DATA_MEDIA_TYPE, index.data.digest, index.data.size),
    )
    manifest = Manifest(
        schema_version=2,
        media_type=OCI_MANIFEST,
        artifact_type=ARTIFACT_TYPE,
        config=Descriptor(EMPTY_MEDIA_TYPE, _digest(EMPTY_BLOB), len(EMPTY_BLOB)),
        layers=layers,
        subject=Descriptor(index.image.media_type, index.image.digest, index.image.size),
        annotations={REVISION: str(revision)} if revision else {},
    )
    raw = encode_json(manifest)
    return Artifact(_digest(raw), raw, manifest)


async def push_artifact(repository: Repository, artifact: Artifact) -> None:
    """Pushes the manifest of an artifact whose blobs are there, and sees to it that it is found."""
    await repository.blobs.upload_bytes(EMPTY_BLOB)
    assert artifact.manifest.subject is not None
    listed = await repository.manifests.put(artifact.digest, OCI_MANIFEST, artifact.raw)
    if not listed:
        await repository.referrers.add(artifact.manifest.subject.digest, artifact.descriptor)


async def _read(repository: Repository, digest: str) -> Artifact:
    fetched = await repository.manifests.get(digest)
    manifest = decode_manifest(repository.host, fetched.raw)
    if manifest.kind != ARTIFACT_TYPE or tuple(layer.media_type for layer in manifest.layers) != _TYPES:
        raise ArtifactError(digest, "does not hold an index, metadata and data")
    return Artifact(digest, fetched.raw, manifest)


def _unpack(packed: Path, path: Path, index: ImageIndex) -> None:
    """Decompresses no more than the index says there is: a hostile frame could fill the disk."""
    metadata = index.metadata
    seen, size = hashlib.sha256(), 0
    with packed.open("rb") as source, path.open("wb") as out:
        try:
            with zstandard.ZstdDecompressor().stream_reader(source) as reader:
                while part := reader.read(min(_PIECE, metadata.plain_size + 1 - size)):
                    out.write(part)
                    seen.update(part)
                    size += len(part)
        except zstandard.ZstdError as error:
            raise ArtifactError(metadata.digest, f"does not decompress: {error}") from error
    if f"sha256:{seen.hexdigest()}" != metadata.plain_digest:
        raise ArtifactError(metadata.digest, "unpacks to something other than its index says")


def _digest(raw: bytes) -> str:
    return f"sha256:{hashlib.sha256(raw).hexdigest()}"
