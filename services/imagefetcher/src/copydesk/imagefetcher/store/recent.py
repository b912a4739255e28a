"""Sectors kept in memory for a short while: those that the disk had no room for."""

from __future__ import annotations

import threading

from copydesk.imagefetcher.store.recency import Recency


class RecentSectors:
    """At most `limit` bytes of sectors, the least recently used dropped first; usable from any thread.

    A reader asks for a sector in many small reads. Without these, a node with a full disk would fetch the whole
    sector for each of them.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._recency = Recency()
        self._contents: dict[str, bytes] = {}

    def get(self, digest: str) -> bytes | None:
        """Return the content of a sector if it is still here."""
        with self._lock:
            self._recency.touch(digest)
            return self._contents.get(digest)

    def put(self, digest: str, content: bytes) -> None:
        """Keep a sector; one that is more than fits is kept alone: who reads it comes back for the rest."""
        with self._lock:
            if digest in self._recency:
                return
            victims = self._recency.victims(self._limit, len(content))
            for victim in list(self._recency) if victims is None else victims:
                self._recency.remove(victim)
                del self._contents[victim]
            self._recency.add(digest, len(content))
            self._contents[digest] = content
