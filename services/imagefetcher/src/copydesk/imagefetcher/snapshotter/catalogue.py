"""The snapshots that containerd knows, in SQLite: its own record of them outlives every process, so must ours."""

from __future__ import annotations

import enum
import json
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from copydesk.imagefetcher.snapshotter.errors import SnapshotExistsError, SnapshotMissingError, SnapshotStateError
from copydesk.imagefetcher.store.database import open_database

_SCHEMA = """
CREATE TABLE IF NOT EXISTS snapshots (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL UNIQUE,
  parent TEXT NOT NULL,
  kind INTEGER NOT NULL,
  created REAL NOT NULL,
  updated REAL NOT NULL,
  labels TEXT NOT NULL,
  image TEXT NOT NULL,
  whole INTEGER NOT NULL);
"""
_FIRST_NUMBER = """
INSERT INTO sqlite_sequence (name, seq)
SELECT 'snapshots', CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)
WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'snapshots');
"""
_COLUMNS = "id, name, parent, kind, created, updated, labels, image, whole"


class Kind(enum.IntEnum):
    """What a snapshot is, in containerd's numbers."""

    VIEW = 1
    ACTIVE = 2
    COMMITTED = 3


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One snapshot; times are in Unix seconds. `image` names the lazily loaded image that it is a part of.

    One that is `whole` has all that its parents would have, so that nobody looks at them.
    """

    id: int
    name: str
    parent: str
    kind: Kind
    created: float
    updated: float
    labels: dict[str, str] = field(compare=False)
    image: str = ""
    whole: bool = False


class Catalogue:
    """The database at `path`, used from one thread. Raises LedgerError if it cannot be opened.

    Numbers of snapshots name their folders and are never used again, even if the database is lost.
    """

    def __init__(self, path: Path) -> None:
        self._database = open_database(path, _SCHEMA + _FIRST_NUMBER)

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def find(self, name: str) -> Snapshot | None:
        """Return a snapshot, if it is there."""
        row = self._database.execute(f"SELECT {_COLUMNS} FROM snapshots WHERE name = ?", (name,)).fetchone()  # noqa: S608
        return None if row is None else _snapshot(row)

    def get(self, name: str) -> Snapshot:
        """Return a snapshot. Raises SnapshotMissingError."""
        found = self.find(name)
        if found is None:
            raise SnapshotMissingError(name, "is not known")
        return found

    def all(self) -> list[Snapshot]:
        """Every snapshot, the oldest first."""
        return [_snapshot(row) for row in self._database.execute(f"SELECT {_COLUMNS} FROM snapshots ORDER BY id")]  # noqa: S608

    def add(
        self,
        name: str,
        parent: str,
        kind: Kind,
        labels: dict[str, str],
        now: float,
        image: str = "",
        *,
        whole: bool = False,
    ) -> Snapshot:
        """Add a snapshot upon a committed one, or upon nothing.

        Raises SnapshotExistsError, SnapshotMissingError and SnapshotStateError (about the parent).
        """
        if parent and self.get(parent).kind is not Kind.COMMITTED:
            raise SnapshotStateError(parent, "is not committed")
        try:
            self._database.execute(
                "INSERT INTO snapshots (name, parent, kind, created, updated, labels, image, whole) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (name, parent, kind, now, now, json.dumps(labels), image, whole),
            )
        except sqlite3.IntegrityError as error:
            raise SnapshotExistsError(name, "exists") from error
        return self.get(name)

    def commit(self, key: str, name: str, labels: dict[str, str], now: float) -> None:
        """Give an active snapshot its final name. Raises SnapshotExistsError and others."""
        active = self.get(key)
        if active.kind is not Kind.ACTIVE:
            raise SnapshotStateError(key, "is not active")
        try:
            self._database.execute(
                "UPDATE snapshots SET name = ?, kind = ?, updated = ?, labels = ? WHERE name = ?",
                (name, Kind.COMMITTED, now, json.dumps(active.labels | labels), key),
            )
        except sqlite3.IntegrityError as error:
            raise SnapshotExistsError(name, "exists") from error

    def relabel(self, name: str, labels: dict[str, str], now: float) -> Snapshot:
        """Give a snapshot other labels. Raises SnapshotMissingError."""
        self.get(name)
        self._database.execute(
            "UPDATE snapshots SET labels = ?, updated = ? WHERE name = ?", (json.dumps(labels), now, name)
        )
        return self.get(name)

    def unpacked(self, name: str, now: float) -> None:
        """Note that a layer of a lazily loaded image is now in the snapshot's own folder, with all below it."""
        self._database.execute(
            "UPDATE snapshots SET image = '', whole = 1, updated = ? WHERE name = ?", (now, name)
        )

    def remove(self, name: str) -> Snapshot:
        """Remove a snapshot that nothing is based upon. Raises SnapshotMissingError, SnapshotStateError."""
        gone = self.get(name)
        if self._database.execute("SELECT 1 FROM snapshots WHERE parent = ?", (name,)).fetchone() is not None:
            raise SnapshotStateError(name, "others are based upon it")
        self._database.execute("DELETE FROM snapshots WHERE name = ?", (name,))
        return gone

    def uses(self, image: str) -> int:
        """How many snapshots are all of an image, and need it to be mounted."""
        row: tuple[int] = self._database.execute(
            "SELECT count(*) FROM snapshots WHERE image = ? AND whole", (image,)
        ).fetchone()
        return row[0]

    def ancestry(self, name: str) -> list[Snapshot]:
        """A snapshot and all that it is based upon, itself first. Raises SnapshotMissingError."""
        line = []
        while name:
            line.append(self.get(name))
            name = line[-1].parent
        return line


def _snapshot(row: tuple[Any, ...]) -> Snapshot:
    number, name, parent, kind, created, updated, labels, image, whole = row
    return Snapshot(number, name, parent, Kind(kind), created, updated, json.loads(labels), image, bool(whole))
