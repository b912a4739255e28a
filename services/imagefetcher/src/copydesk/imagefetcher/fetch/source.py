"""The seam to who has sectors: peers, mirrors and registries."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Protocol

from copydesk.imagefetcher.fetch.place import Place


class SourceKind(enum.IntEnum):
    """Who gives sectors; the lower, the sooner it is asked."""

    PEER = 0
    MIRROR = 1
    REGISTRY = 2

    @property
    def label(self) -> str:
        """Its name in metrics and status."""
        return self.name.lower()


class Source(Protocol):
    """Gives the plain content of sectors, checked against their digests."""

    @property
    def name(self) -> str:
        """What it is called in logs; the same name is the same source, whose failures count together."""

    @property
    def kind(self) -> SourceKind:
        """When it is asked."""

    async def fetch(self, run: Sequence[Place]) -> list[bytes]:
        """Return the content of sectors that lie behind one another in one image.

        Raises SourceError for whatever goes wrong; no wrong byte is ever returned.
        """


class RangeClient(Protocol):
    """Reads parts of blobs."""

    async def read_blob(self, digest: str, start: int, stop: int) -> bytes:
        """Return bytes `start` to `stop` (exclusive) of a blob."""
