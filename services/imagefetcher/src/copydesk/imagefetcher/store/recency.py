"""Which sectors were used when, and which of them make room: pure bookkeeping, no files."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator


class Recency:
    """Sizes of what is held, in bytes, from the one used longest ago to the one used last."""

    def __init__(self, entries: Iterable[tuple[str, int]] = ()) -> None:
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self.total = 0
        for digest, size in entries:
            self.add(digest, size)

    def __contains__(self, digest: str) -> bool:
        return digest in self._sizes

    def __len__(self) -> int:
        return len(self._sizes)

    def __iter__(self) -> Iterator[str]:
        return iter(self._sizes)

    def size(self, digest: str) -> int | None:
        """Bytes of `digest`, None if it is not held."""
        return self._sizes.get(digest)

    def add(self, digest: str, size: int) -> None:
        """Hold `digest`, used just now; a size that was known before is replaced."""
        self.remove(digest)
        self._sizes[digest] = size
        self.total += size

    def touch(self, digest: str) -> None:
        """Count `digest`, if it is held, as used just now."""
        if digest in self._sizes:
            self._sizes.move_to_end(digest)

    def remove(self, digest: str) -> None:
        """Hold `digest` no more."""
        self.total -= self._sizes.pop(digest, 0)

    def items(self) -> list[tuple[str, int]]:
        """All digests with their sizes, the one used longest ago first."""
        return list(self._sizes.items())

    def victims(self, limit: int, incoming: int) -> list[str] | None:
        """Return what has to go so that `incoming` bytes more fit into `limit`, the least recently used first.

        None if they cannot fit at all: then nothing is to be evicted for them.
        """
        if incoming > limit:
            return None
        surplus = self.total + incoming - limit
        chosen: list[str] = []
        for digest, size in self._sizes.items():
            if surplus <= 0:
                break
            chosen.append(digest)
            surplus -= size
        return chosen
