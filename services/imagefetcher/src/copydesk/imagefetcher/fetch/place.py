"""Where a sector is: its number in the data of an image."""

from __future__ import annotations

from dataclasses import dataclass, field

from copydesk.imagefetcher.index import Data, Sector


@dataclass(frozen=True, slots=True)
class Place:
    """Sector `number` of `image` (the digest of its index). What is compared is these two, not all of `data`."""

    image: str
    number: int
    data: Data = field(compare=False, repr=False)

    @property
    def sector(self) -> Sector:
        """The sector's place in the blob, and its digests."""
        return self.data.sectors[self.number]

    @property
    def digest(self) -> str:
        """The digest of the plain content, by which the sector is the same in every image."""
        return self.sector.plain_digest

    def precedes(self, other: Place) -> bool:
        """Whether `other` is the next sector of the same image."""
        return self.image == other.image and self.number + 1 == other.number
