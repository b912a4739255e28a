"""Answers kept in this process."""

from __future__ import annotations

from collections import OrderedDict

ENTRY_OVERHEAD = 250
"""About what an entry takes beside its key and value: two objects, and their place in the table."""


class MemoryCache:
    """The most recently used answers, as many as fit into `capacity` bytes."""

    def __init__(self, capacity: int) -> None:
        self.size = 0
        self._capacity = capacity
        self._values: OrderedDict[str, bytes] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: str) -> bytes | None:
        """Return what is kept under `key`, and keep it longer."""
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def put(self, key: str, value: bytes) -> None:
        """Keep `value`; what has not been asked for longest goes."""
        self._drop(self._values.pop(key, None), key)
        size = _size(key, value)
        if size > self._capacity:
            return
        self._values[key] = value
        self.size += size
        while self.size > self._capacity:
            oldest, dropped = self._values.popitem(last=False)
            self._drop(dropped, oldest)

    def _drop(self, value: bytes | None, key: str) -> None:
        if value is not None:
            self.size -= _size(key, value)


def _size(key: str, value: bytes) -> int:
    return len(key) + len(value) + ENTRY_OVERHEAD
