"""Where keys are written down: a file, a hash in Redis."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from copydesk.common.telemetry import get_logger
from copydesk.gateway.keys import NAME_PATTERN, KeyLimits, KeyRing, KeysFileError
from copydesk.gateway.redis_link import RedisLink

KEYS_HASH = "copydesk:keys"

PAGE = 1_000
"""Entries asked for at once, so that no reply is large."""

_log = get_logger(__name__)


class StoredKey(KeyLimits, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A key as Redis has it, under its SHA-256 in hexadecimal digits.

    Fields of newer versions are ignored, and named in the log: a limit that is misspelt is none.
    """

    name: Annotated[str, Meta(pattern=NAME_PATTERN)]


_decode = msgspec.json.Decoder(StoredKey).decode
_decode_names = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class KeyFile:
    """A file of keys that may be replaced or written anew at any time.

    It is looked at rather than announced (by SIGHUP): a mounted secret changes without anybody to send a signal.
    `ring` is the keys in it now, None if it was never read; a file that cannot be used leaves what was there
    before.
    """

    def __init__(self, path: Path, ring: KeyRing | None = None) -> None:
        self.ring = ring
        self._path = path
        self._seen: tuple[int, ...] | None = None

    async def look(self) -> None:
        """Read the file if it has changed since the last look."""
        await asyncio.to_thread(self._look)

    def _look(self) -> None:
        seen = self._stamp()
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self.ring = KeyRing.load(self._path)
        except KeysFileError as error:
            _log.error("keys_file_unusable", path=str(error.path), error=error.reason)
            return
        _log.info("keys_file_read", path=str(self._path), keys=len(self.ring.digests))

    def _stamp(self) -> tuple[int, ...]:
        try:
            found = self._path.stat()
        except OSError:
            return ()
        return found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev


class RedisKeys:
    """The hash `copydesk:keys`, read in full again and again.

    In full, so that a request never waits for it, no flood of wrong keys reaches Redis, and the keys stay in force
    while Redis is away. `ring` is None until it was read once.
    """

    def __init__(self, link: RedisLink) -> None:
        self.ring: KeyRing | None = None
        self._link = link
        self._found: dict[bytes, bytes] = {}
        self._complaints: frozenset[str] = frozenset()

    async def look(self) -> None:
        """Read all keys; raises what the link raises, and then `ring` is as before.

        A hash that is gone, when it was not before, is taken for a mishap (a Redis that lost its data), not for
        the wish to lock everybody out: a key that shall not be used any more is deleted among others, or disabled.
        """
        found = await self._read()
        if not found and self.ring is not None and self.ring.digests:
            self._complain({f"{KEYS_HASH} is gone; its last keys stay in force"})
            return
        if self.ring is None or found != self._found:
            self.ring, self._found = self._ring(found), found

    async def _read(self) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        cursor = b"0"
        while True:
            cursor, page = await self._link.call("HSCAN", KEYS_HASH, cursor, "COUNT", PAGE)
            found.update(zip(page[::2], page[1::2], strict=True))
            if cursor == b"0":
                return found

    def _ring(self, found: dict[bytes, bytes]) -> KeyRing:
        entries, complaints = [], set()
        for field, value in found.items():
            try:
                key = _decode(value)
                entries.append((key.name, _digest(field), key))
                for name in _decode_names(value).keys() - set(StoredKey.__struct_fields__):
                    complaints.add(f"{_begin(field)}: {name!r} is no field of a key, and left out")
            except (ValueError, msgspec.MsgspecError) as error:
                complaints.add(f"{_begin(field)}: {error}")
        self._complain(complaints)
        return KeyRing.of(entries)

    def _complain(self, complaints: set[str]) -> None:
        for complaint in sorted(complaints - self._complaints):
            _log.warning("redis_key_unusable", error=complaint)
        self._complaints = frozenset(complaints)


def _digest(field: bytes) -> bytes:
    if len(field) != 64:
        raise ValueError("the field is not 64 hexadecimal digits")
    return bytes.fromhex(field.decode("ascii"))


def _begin(field: bytes) -> str:
    return field[:8].decode("ascii", "replace")
