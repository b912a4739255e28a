"""The seam to registries: what the node asks of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from copydesk.imagefetcher.errors import ImageError
from copydesk.imagefetcher.fetch.source import Source
from copydesk.imagefetcher.index import ImageIndex


class NotConvertedError(ImageError):
    """An image without a converted form: it carries the reference. Pull it the normal way."""

    hint = "Convert it once with: copydesk image convert REF"

    def __init__(self, reference: str) -> None:
        self.reference = reference
        super().__init__(f"{reference} has not been converted")


class UpstreamError(ImageError):
    """A registry that cannot be asked, or says something unusable: it carries reference and reason."""

    def __init__(self, reference: str, reason: str, hint: str = "") -> None:
        self.reference = reference
        self.reason = reason
        self.hint = hint
        super().__init__(f"{reference}: {reason}")


@dataclass(frozen=True, slots=True)
class Converted:
    """The converted form of an image: its index as it stands in the registry."""

    reference: str
    index: bytes


class Upstream(Protocol):
    """Registries, and mirrors of them."""

    async def find(self, reference: str) -> Converted:
        """Return the index of an image's converted form for this machine's platform.

        Raises NotConvertedError, UpstreamError.
        """

    async def fetch_metadata(self, reference: str, index: ImageIndex, path: Path) -> None:
        """Write the plain metadata of an image to `path`; the caller checks it. Raises UpstreamError."""

    def sources(self, reference: str) -> Sequence[Source]:
        """Return who has the image's data: mirrors, then its registry."""

    async def unpack(self, reference: str, layers: int, target: Path) -> None:
        """Unpack the lowest layers of an image, one over the other, into the empty folder `target`.

        Raises UpstreamError.
        """

    async def close(self) -> None:
        """Close connections."""
