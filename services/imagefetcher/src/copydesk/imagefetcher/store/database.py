"""SQLite files that are opened whatever state they are in."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from copydesk.common.telemetry import get_logger
from copydesk.imagefetcher.errors import ImageError

_BESIDE = ("-wal", "-shm", "-journal")

_log = get_logger(__name__)


class LedgerError(ImageError):
    """The database cannot be read or written, as when its disk is full: it carries the reason."""

    hint = "Is there room in COPYDESK_IMAGEFETCHER_STATE_DIR, and may it be written?"

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"ledger: {reason}")


def open_database(path: Path, schema: str) -> sqlite3.Connection:
    """Open a database, written ahead (WAL), with the tables of `schema`.

    One that is damaged is set aside, under its name with `.damaged` behind it, and a new one begun: a node that
    does not start leaves every reader waiting, which is worse than what the database knew. Raises LedgerError for
    one that cannot be used at this moment.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        return _opened(path, schema)
    except sqlite3.OperationalError as error:  # locked, read-only, no room: nothing is wrong with the file
        raise LedgerError(f"{path}: {error}") from error
    except sqlite3.DatabaseError as error:
        _log.error("database_damaged", path=str(path), error=str(error))
    try:
        _set_aside(path)
        return _opened(path, schema)
    except (sqlite3.Error, OSError) as error:
        raise LedgerError(f"{path}: {error}") from error


def _opened(path: Path, schema: str) -> sqlite3.Connection:
    database = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=10.0)
    try:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=NORMAL")
        (verdict,) = database.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict)
        database.executescript(schema)
    except BaseException:
        database.close()
        raise
    return database


def _set_aside(path: Path) -> None:
    path.replace(path.with_name(path.name + ".damaged"))
    for suffix in _BESIDE:
        path.with_name(path.name + suffix).unlink(missing_ok=True)
