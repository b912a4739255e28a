"""The seam to registries: what the node asks of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from copydesk.imagefetcher.errors import ImageError
from copydesk.imagefetcher.fetch.source import Source


class NotConvertedError(ImageError):
    """An image without a converted form: it carries the reference. Pull it the normal way."""

    hint = "Convert it once with: copydesk image convert REF"

    def __init__(self, reference: str) -> None:
        self.reference = reference
        super().__init__(f"{reference} has not been converted")


class UpstreamError(ImageError):
    """A registry that cannot be asked, or says something unusable: it carries reference and reason."""

    def __init__(self, reference: str, reason: str) -> None:
        self.reference = reference
        self.reason = reason
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

    async def blob(self, reference: str, digest: str, size: int) -> bytes:
        """Return a whole blob of the image's repository; the caller checks it. Raises UpstreamError."""

    def sources(self, reference: str) -> Sequence[Source]:
        """Return who has the image's data: mirrors, then its registry."""

    async def close(self) -> None:
        """Close connections."""
