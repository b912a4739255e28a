"""Counts that each worker keeps of itself in memory that the supervisor reads: no message has to say them.

A count is one aligned machine word that only its worker writes, so that a reader never sees half of it.
"""

from __future__ import annotations

import mmap
from pathlib import Path

_WORD = 8
_TAKEN, _CLOSED = 0, 1
_COUNTS = 2


class Tally:
    """A file of counts, one row a worker, mapped into supervisor and workers."""

    def __init__(self, path: Path, workers: int) -> None:
        with path.open("a+b") as file:
            file.truncate(workers * _COUNTS * _WORD)
            self._words = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")

    def taken(self, worker: int) -> int:
        """Return how many messages the worker has taken from its inbox."""
        return self._words[worker * _COUNTS + _TAKEN]

    def closed(self, worker: int) -> int:
        """Return how many of its connections are no more."""
        return self._words[worker * _COUNTS + _CLOSED]

    def count_taken(self, worker: int) -> None:
        """Count a message; the worker's own to call."""
        self._words[worker * _COUNTS + _TAKEN] += 1

    def count_closed(self, worker: int) -> None:
        """Count the end of a connection; the worker's own to call."""
        self._words[worker * _COUNTS + _CLOSED] += 1

    def reset(self, worker: int) -> None:
        """Begin anew, once the worker is dead."""
        self._words[worker * _COUNTS + _TAKEN] = 0
        self._words[worker * _COUNTS + _CLOSED] = 0
