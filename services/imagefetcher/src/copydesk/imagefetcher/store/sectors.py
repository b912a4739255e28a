"""The cache of sectors on disk: plain files named by the digest of their content, shared by all images.

Plain and not compressed: a reader asks for 4 KiB to 1 MiB of a sector of 4 MiB. Out of a plain file, 128 KiB take
0.08 ms; a compressed sector had to be decompressed whole for each, in 28 ms (measured side by side, on a busy
core). The room that compression would save, 1.9-fold, is worth less on a node's disk than the processor time of
its readers.

A file is trusted only after its content was hashed by this process, and as long as it has not been written to
since; one that does not match is removed, counted, and fetched again by whoever asked.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from copydesk.common.telemetry import get_logger
from copydesk.imagefetcher.store.ledger import Ledger, LedgerError, SectorRow
from copydesk.imagefetcher.store.recency import Recency

_MOST_BYTES = 64 << 20
"""No sector is larger: a file that is was written by somebody else, and is not read into memory."""
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Stamp:
    """By what a file is recognised as the one that was hashed."""

    inode: int
    modified: int
    size: int


@dataclass(frozen=True, slots=True)
class StoreCounts:
    """What has happened since the start."""

    corrupt: int = 0
    evicted: int = 0
    refused: int = 0


class SectorStore:
    """Sectors in `folder`, at most `limit` bytes of them; usable from any thread.

    Evicting a sector is safe under live mounts: who reads it has the file open, and who comes next fetches it
    again. `clock` gives Unix seconds.
    """

    def __init__(self, folder: Path, limit: int, ledger: Ledger, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._scratch = folder / "incoming"
        self._limit = limit
        self._ledger = ledger
        self._clock = clock
        self._lock = threading.Lock()
        self._writing = threading.Lock()  # one at a time, or several would each find the last room free
        self._recency = Recency()
        self._verified: dict[str, _Stamp] = {}
        self._used: dict[str, float] = {}
        self._removed: set[str] = set()
        self._corrupt = self._evicted = self._refused = 0
        self._load()

    @property
    def counts(self) -> StoreCounts:
        """How many sectors were found corrupt, were evicted, and were refused by a full disk."""
        return StoreCounts(self._corrupt, self._evicted, self._refused)

    @property
    def total(self) -> int:
        """Bytes held."""
        return self._recency.total

    @property
    def limit(self) -> int:
        """Bytes that may be held."""
        return self._limit

    def __len__(self) -> int:
        return len(self._recency)

    def __contains__(self, digest: str) -> bool:
        return digest in self._recency

    def has_room(self, size: int) -> bool:
        """Whether `size` bytes more fit without evicting anything."""
        return self._recency.total + size <= self._limit

    def read(self, digest: str, start: int, stop: int) -> bytes | None:
        """Return bytes `start` to `stop` of a sector, None if it is not held (any more).

        The first read since the start of this process hashes the whole sector.
        """
        try:
            file = os.open(self._path(digest), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            self._miss(digest)
            return None
        except OSError as error:
            _log.warning("cache_unreadable", digest=digest, error=str(error))
            return None
        try:
            return self._read(file, digest, start, stop)
        except OSError as error:  # a failing disk is as good as an absent file: the registry has the sector
            _log.warning("cache_unreadable", digest=digest, error=str(error))
            self._discard_corrupt(digest)
            return None
        finally:
            os.close(file)

    def read_whole(self, digest: str) -> bytes | None:
        """Return all of a sector, None if it is not held."""
        with self._lock:
            size = self._recency.size(digest)
        return self.read(digest, 0, size) if size is not None else None

    def put(self, digest: str, content: bytes) -> bool:
        """Keep a sector whose content has been checked; say whether it is held now. A full disk is no error."""
        with self._writing:
            return self._put(digest, content)

    def _put(self, digest: str, content: bytes) -> bool:
        with self._lock:
            if digest in self._recency:
                return True
            victims = self._recency.victims(self._limit, len(content))
        if victims is None:
            self._refused += 1
            return False
        self._evict(victims)
        try:
            stamp = self._write(digest, content)
        except OSError as error:
            self._refused += 1
            if error.errno not in _NO_ROOM:
                _log.warning("cache_unwritable", digest=digest, error=str(error))
            return False
        with self._lock:
            self._recency.add(digest, len(content))
            self._verified[digest] = stamp
            self._used[digest] = self._clock()
            self._removed.discard(digest)
        return True

    def clear(self) -> int:
        """Remove every sector; return how many bytes that frees."""
        with self._lock:
            freed, digests = self._recency.total, list(self._recency)
        for digest in digests:
            self._remove(digest)
        self.save()
        return freed

    def save(self) -> None:
        """Write to the ledger what was used, added and removed since the last time.

        On a full disk it is written the next time: the files are what counts.
        """
        with self._lock:
            used, self._used = self._used, {}
            removed, self._removed = self._removed, set()
            sizes = dict(self._recency.items())
        rows = [SectorRow(digest, sizes[digest], when) for digest, when in used.items() if digest in sizes]
        if not rows and not removed:
            return
        try:
            self._ledger.save_sectors(rows, removed)
        except LedgerError as error:
            _log.warning("cache_use_unsaved", error=str(error))
            with self._lock:
                self._used = used | self._used
                self._removed |= removed - self._used.keys()

    def _load(self) -> None:
        """Take stock: files have the last word, the ledger says in which order they were used."""
        self._scratch.mkdir(parents=True, exist_ok=True)
        for left in self._scratch.iterdir():
            left.unlink(missing_ok=True)
        present = {f"sha256:{path.name}": path.stat().st_size for path in self._folder.glob("??/*")}
        known = self._ledger.sectors()
        for row in known:
            if row.digest in present:
                self._recency.add(row.digest, present.pop(row.digest))
            else:
                self._removed.add(row.digest)
        for digest, size in present.items():
            self._recency.add(digest, size)
            self._used[digest] = self._clock()
        self._evict(self._recency.victims(self._limit, 0) or [])
        self.save()

    def _read(self, file: int, digest: str, start: int, stop: int) -> bytes | None:
        status = os.fstat(file)
        stamp = _Stamp(status.st_ino, status.st_mtime_ns, status.st_size)
        if self._verified.get(digest) != stamp and not self._verify(file, digest, stamp):
            return None
        content = os.pread(file, stop - start, start)
        if len(content) != stop - start:
            self._discard_corrupt(digest)
            return None
        with self._lock:
            self._recency.touch(digest)
            self._used[digest] = self._clock()
        return content

    def _verify(self, file: int, digest: str, stamp: _Stamp) -> bool:
        content = os.pread(file, stamp.size, 0) if stamp.size <= _MOST_BYTES else b""
        if f"sha256:{hashlib.sha256(content).hexdigest()}" != digest:
            self._discard_corrupt(digest)
            return False
        with self._lock:
            self._verified[digest] = stamp
            if digest not in self._recency:
                self._recency.add(digest, stamp.size)
        return True

    def _discard_corrupt(self, digest: str) -> None:
        self._corrupt += 1
        _log.warning("cache_corrupt", digest=digest)
        self._remove(digest)

    def _write(self, digest: str, content: bytes) -> _Stamp:
        incoming = self._scratch / uuid.uuid4().hex
        try:
            self._scratch.mkdir(parents=True, exist_ok=True)  # somebody may have emptied the cache by hand
            with incoming.open("wb") as file:
                file.write(content)
                file.flush()
                status = os.fstat(file.fileno())
            path = self._path(digest)
            path.parent.mkdir(exist_ok=True)
            incoming.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                incoming.unlink(missing_ok=True)
            raise
        return _Stamp(status.st_ino, status.st_mtime_ns, status.st_size)

    def _evict(self, victims: list[str]) -> None:
        for digest in victims:
            self._remove(digest)
            self._evicted += 1

    def _remove(self, digest: str) -> None:
        with contextlib.suppress(OSError):
            self._path(digest).unlink(missing_ok=True)
        self._forget(digest)

    def _miss(self, digest: str) -> None:
        """Forget a sector whose file is gone, unless it was put between the reader's look and this one."""
        with self._lock:
            if digest in self._recency and not self._path(digest).exists():
                self._drop(digest)

    def _forget(self, digest: str) -> None:
        with self._lock:
            if digest in self._recency:
                self._drop(digest)

    def _drop(self, digest: str) -> None:
        self._recency.remove(digest)
        self._verified.pop(digest, None)
        self._used.pop(digest, None)
        self._removed.add(digest)

    def _path(self, digest: str) -> Path:
        name = digest.removeprefix("sha256:")
        return self._folder / name[:2] / name
