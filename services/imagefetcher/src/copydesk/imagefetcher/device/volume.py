"""An image's data as one file: which parts of which sectors a read is made of. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from copydesk.imagefetcher.fetch.place import Place
from copydesk.imagefetcher.index import Data


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes `start` to `stop` of the sector at `place`."""

    place: Place
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Volume:
    """The data of `image` (the digest of its index), as file number `node` of the file system."""

    node: int
    image: str
    data: Data

    @property
    def name(self) -> str:
        """The name of its file."""
        return self.image.removeprefix("sha256:")

    @property
    def size(self) -> int:
        """Bytes that can be read."""
        return self.data.device_size

    def place(self, number: int) -> Place:
        """Where sector `number` is."""
        return Place(self.image, number, self.data)

    def places(self) -> list[Place]:
        """All sectors, in the order in which they lie."""
        return [self.place(number) for number in range(len(self.data.sectors))]

    def pieces(self, offset: int, length: int) -> list[Piece]:
        """What a read of `length` bytes at `offset` consists of; it ends where the device does."""
        end = min(offset + length, self.size)
        pieces = []
        while offset < end:
            number, start = divmod(offset, self.data.sector_size)
            stop = min(start + end - offset, self.data.sectors[number].plain_length)
            pieces.append(Piece(self.place(number), start, stop))
            offset += stop - start
        return pieces
