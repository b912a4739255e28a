"""The node's memory over restarts: images, mounts and cached sectors, in SQLite.

Written ahead (WAL), so that a process killed at any moment leaves a ledger that opens. The files beside it have
the last word on what is cached: a row without a file is dropped, a file without a row adopted, both at the start.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from copydesk.imagefetcher.store.database import LedgerError, open_database

__all__ = ["ImageRow", "Ledger", "LedgerError", "MountRow", "SectorRow"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS images (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  image TEXT NOT NULL UNIQUE,
  reference TEXT NOT NULL,
  added REAL NOT NULL);
CREATE TABLE IF NOT EXISTS mounts (target TEXT PRIMARY KEY, image TEXT NOT NULL, mounted REAL NOT NULL);
CREATE TABLE IF NOT EXISTS sectors (digest TEXT PRIMARY KEY, size INTEGER NOT NULL, used REAL NOT NULL);
"""


@dataclass(frozen=True, slots=True)
class ImageRow:
    """An image that the node knows; `number` tells in which order they came."""

    number: int
    image: str
    reference: str
    added: float


@dataclass(frozen=True, slots=True)
class MountRow:
    """Where an image is mounted, since when (Unix seconds)."""

    target: str
    image: str
    mounted: float


@dataclass(frozen=True, slots=True)
class SectorRow:
    """A cached sector: its size in bytes, and when it was last used (Unix seconds)."""

    digest: str
    size: int
    used: float


class Ledger:
    """The database at `path`; usable from any thread. Whatever fails raises LedgerError."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._database = open_database(path, _SCHEMA)

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._database.close()

    def add_image(self, image: str, reference: str, now: float) -> ImageRow:
        """Remember an image; one that is known keeps its number and takes the newer reference."""
        with self._transaction():
            self._database.execute(
                "INSERT INTO images (image, reference, added) VALUES (?, ?, ?) "
                "ON CONFLICT (image) DO UPDATE SET reference = excluded.reference",
                (image, reference, now),
            )
            row = self._database.execute(
                "SELECT number, image, reference, added FROM images WHERE image = ?", (image,)
            ).fetchone()
        return ImageRow(*row)

    def images(self) -> list[ImageRow]:
        """All images, in the order in which they came."""
        return [
            ImageRow(*row)
            for row in self._all("SELECT number, image, reference, added FROM images ORDER BY number")
        ]

    def remove_image(self, image: str) -> None:
        """Forget an image."""
        self._change("DELETE FROM images WHERE image = ?", [(image,)])

    def add_mount(self, target: str, image: str, now: float) -> None:
        """Remember a mount; another at the same target is replaced."""
        self._change("INSERT OR REPLACE INTO mounts VALUES (?, ?, ?)", [(target, image, now)])

    def mounts(self) -> list[MountRow]:
        """All mounts, the oldest first."""
        return [MountRow(*row) for row in self._all("SELECT target, image, mounted FROM mounts ORDER BY mounted")]

    def remove_mount(self, target: str) -> None:
        """Forget a mount."""
        self._change("DELETE FROM mounts WHERE target = ?", [(target,)])

    def sectors(self) -> list[SectorRow]:
        """All cached sectors, the one used longest ago first."""
        return [
            SectorRow(*row) for row in self._all("SELECT digest, size, used FROM sectors ORDER BY used, digest")
        ]

    def save_sectors(self, changed: Iterable[SectorRow], removed: Iterable[str]) -> None:
        """Write what has changed about cached sectors, in one transaction."""
        with self._transaction():
            self._database.executemany(
                "INSERT OR REPLACE INTO sectors VALUES (?, ?, ?)",
                [(row.digest, row.size, row.used) for row in changed],
            )
            self._database.executemany("DELETE FROM sectors WHERE digest = ?", [(digest,) for digest in removed])

    def _all(self, query: str) -> list[tuple[Any, ...]]:
        with self._transaction():
            return self._database.execute(query).fetchall()

    def _change(self, statement: str, rows: list[tuple[object, ...]]) -> None:
        with self._transaction():
            self._database.executemany(statement, rows)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock:
            try:
                self._database.execute("BEGIN")
                yield
                self._database.execute("COMMIT")
            except sqlite3.Error as error:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise LedgerError(str(error)) from error
