"""The images that a node knows, as files: the index, and the EROFS metadata ready to be mounted."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from copydesk.common.telemetry import get_logger
from copydesk.imagefetcher.device.volume import Volume
from copydesk.imagefetcher.errors import ImageError
from copydesk.imagefetcher.fetch.place import Place
from copydesk.imagefetcher.index import ImageIndex, decode
from copydesk.imagefetcher.store.ledger import ImageRow, Ledger

_CHUNK = 1 << 20

_log = get_logger(__name__)


class MetadataError(ImageError):
    """Metadata that is not what the index names: it carries the image and what is wrong."""

    def __init__(self, image: str, reason: str) -> None:
        self.image = image
        self.reason = reason
        super().__init__(f"metadata of {image}: {reason}")


@dataclass(frozen=True, slots=True)
class KnownImage:
    """An image with its files in `folder`."""

    image: str
    reference: str
    index: ImageIndex
    volume: Volume
    folder: Path
    start_up: frozenset[int]

    @property
    def metadata(self) -> Path:
        """The file that is mounted."""
        return self.folder / "metadata.erofs"


class Library:
    """Images in `folder`, listed in the ledger; named by the digest of their index.

    What the ledger has lost is taken from the folder again: readers of its mounts must not feel it.
    """

    def __init__(self, folder: Path, ledger: Ledger, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._ledger = ledger
        self._clock = clock
        self._images: dict[str, KnownImage] = {}
        folder.mkdir(parents=True, exist_ok=True)
        for row in ledger.images():
            self._load(row)
        for path in sorted(folder.glob("*/reference")):
            self._adopt(path)

    def __len__(self) -> int:
        return len(self._images)

    def all(self) -> list[KnownImage]:
        """Every image, in the order in which they came."""
        return list(self._images.values())

    def get(self, image: str) -> KnownImage | None:
        """Return the image of this digest."""
        return self._images.get(image)

    def start_up(self, place: Place) -> frozenset[int]:
        """The numbers of the sectors that the recorded start-up of a sector's image reads."""
        known = self._images.get(place.image)
        return known.start_up if known is not None else frozenset()

    def find(self, reference: str) -> KnownImage | None:
        """Return the image that came last by this reference."""
        return next((known for known in reversed(self.all()) if known.reference == reference), None)

    def add(self, reference: str, raw: bytes) -> KnownImage:
        """Remember an image by its index; its metadata may be missing.

        Raises IndexFormatError, MetadataError (no room), LedgerError.
        """
        index = decode(raw)
        image = f"sha256:{hashlib.sha256(raw).hexdigest()}"
        folder = self._path(image)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _write(folder / "index.json", raw)
            _write(folder / "reference", reference.encode())
        except OSError as error:
            raise MetadataError(image, f"its index cannot be kept: {error.strerror}") from error
        return self._remember(self._ledger.add_image(image, reference, self._clock()), index)

    def has_metadata(self, known: KnownImage) -> bool:
        """Whether the metadata is there and right; reads all of it."""
        try:
            return _digest(known.metadata) == known.index.metadata.plain_digest
        except OSError:
            return False

    def incoming(self, known: KnownImage) -> Path:
        """Where metadata is to be written before it is accepted."""
        return known.folder / "incoming.erofs"

    def accept_metadata(self, known: KnownImage) -> None:
        """Check the metadata that came in, and keep it. Raises MetadataError."""
        path = self.incoming(known)
        wanted = known.index.metadata.plain_digest
        found = _digest(path)
        if found != wanted:
            path.unlink()
            raise MetadataError(known.image, f"is {found} instead of {wanted}")
        with path.open("rb") as file:
            os.fsync(file.fileno())
        path.replace(known.metadata)

    def remove(self, known: KnownImage) -> None:
        """Forget an image and remove its files."""
        self._images.pop(known.image, None)
        self._ledger.remove_image(known.image)
        shutil.rmtree(known.folder, ignore_errors=True)

    def _load(self, row: ImageRow) -> None:
        """One bad image must not keep the node from starting: it is forgotten, and fetched anew when asked for."""
        try:
            self._remember(row, self._read(row.image))
        except (OSError, ImageError) as error:
            _log.warning("image_forgotten", image=row.image, reference=row.reference, error=str(error))
            self._ledger.remove_image(row.image)

    def _adopt(self, path: Path) -> None:
        image = f"sha256:{path.parent.name}"
        if image in self._images:
            return
        try:
            index, reference = self._read(image), path.read_text()
            self._remember(self._ledger.add_image(image, reference, self._clock()), index)
        except (OSError, UnicodeDecodeError, ImageError) as error:
            _log.warning("image_not_adopted", image=image, error=str(error))
            return
        _log.info("image_adopted", image=image, reference=reference)

    def _read(self, image: str) -> ImageIndex:
        raw = (self._path(image) / "index.json").read_bytes()
        if f"sha256:{hashlib.sha256(raw).hexdigest()}" != image:
            raise MetadataError(image, "its index on disk is another")
        return decode(raw)

    def _remember(self, row: ImageRow, index: ImageIndex) -> KnownImage:
        volume = Volume(file_number(row.image), row.image, index.data)
        if any(other.volume.node == volume.node for other in self._images.values() if other.image != row.image):
            raise MetadataError(row.image, "has the file number of another image")
        known = KnownImage(
            row.image, row.reference, index, volume, self._path(row.image), frozenset(index.prefetch)
        )
        self._images[row.image] = known
        return known

    def _path(self, image: str) -> Path:
        return self._folder / image.removeprefix("sha256:")


def file_number(image: str) -> int:
    """The number of an image's file, by which the kernel remembers it for as long as it is mounted.

    It follows from the digest, so that no loss of the ledger can make one image's number that of another. Never 1,
    the number of the folder.
    """
    return int(image.removeprefix("sha256:")[:16], 16) >> 2 | 1 << 62


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return f"sha256:{digest.hexdigest()}"


def _write(path: Path, content: bytes) -> None:
    """Replace a file as a whole, so that a loss of power leaves the old or the new one."""
    scratch = path.with_name(f".{uuid.uuid4().hex}")
    with scratch.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)
