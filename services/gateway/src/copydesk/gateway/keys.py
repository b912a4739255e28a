"""API keys: what a key may do, a file of names and hashes, and the check of a request's key against them."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from copydesk.common.errors import CopydeskError
from copydesk.gateway import faults

NAME_PATTERN = r"^[A-Za-z0-9._-]{1,64}$"

_LINE = re.compile(r"(?P<name>[A-Za-z0-9._-]{1,64}):(?P<digest>[0-9a-f]{64})(?P<words>(\s+\S+)*)")
_NOBODY = ("", bytes(hashlib.sha256().digest_size))

PerSecond = Annotated[float, Meta(ge=0.001, le=100_000)]
Burst = Annotated[int, Meta(ge=1, le=100_000)]
Concurrency = Annotated[int, Meta(ge=1, le=1_000_000)]

T = TypeVar("T", int, float)


class KeyLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a key may do, where it differs from the gateway's defaults (None).

    `burst` requests may come at once, on average no more than `requests_per_second`; `concurrency` may be underway
    at once on one gateway. A `disabled` key is refused as if it were unknown.
    """

    requests_per_second: PerSecond | None = None
    burst: Burst | None = None
    concurrency: Concurrency | None = None
    disabled: bool = False

    def stricter(self, other: KeyLimits) -> KeyLimits:
        """Return the lowest of each limit, for two keys that share a name."""
        return KeyLimits(
            requests_per_second=_lower(self.requests_per_second, other.requests_per_second),
            burst=_lower(self.burst, other.burst),
            concurrency=_lower(self.concurrency, other.concurrency),
        )


NO_LIMITS = KeyLimits()


class KeysFileError(CopydeskError):
    """A file of keys that cannot be used: it carries the path and the reason."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}")


class KeyRing:
    """The keys that are let in: names, with the SHA-256 of each key, and the limits of each name.

    A plain hash is enough for keys that are long and random (`openssl rand -hex 32`), not for passwords. Several
    keys may have one name, so that a new key can come before the old one goes; they share its limits.
    """

    def __init__(
        self,
        digests: Iterable[tuple[str, bytes]],
        limits: Mapping[str, KeyLimits] = MappingProxyType({}),
    ) -> None:
        self.digests = tuple(digests)
        self.limits = dict(limits)
        self._by_digest = {digest: (name, digest) for name, digest in self.digests}

    @classmethod
    def of(cls, entries: Iterable[tuple[str, bytes, KeyLimits]]) -> KeyRing:
        """Make a ring of names, digests and limits, without the disabled ones."""
        digests: list[tuple[str, bytes]] = []
        limits: dict[str, KeyLimits] = {}
        for name, digest, found in entries:
            if found.disabled:
                continue
            digests.append((name, digest))
            limits[name] = limits.get(name, found).stricter(found)
        return cls(digests, limits)

    @classmethod
    def load(cls, path: Path) -> KeyRing:
        """Read lines `name:sha256-hex`, skipping empty ones and those with #; raises `KeysFileError`.

        Behind the hash may stand limits, such as `requests_per_second=5 burst=10 concurrency=4`, or `disabled`.
        """
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise KeysFileError(path, error.strerror or str(error)) from error
        except UnicodeDecodeError as error:
            raise KeysFileError(path, str(error)) from error
        entries = []
        for number, line in enumerate(lines, start=1):
            if line.strip() and not line.startswith("#"):
                entries.append(_entry(path, number, line.strip()))
        if not entries:
            raise KeysFileError(path, "it holds no key")
        return cls.of(entries)

    def joined(self, other: KeyRing) -> KeyRing:
        """Return a ring of the keys of both."""
        entries = [
            (name, digest, ring.limits.get(name, NO_LIMITS))
            for ring in (self, other)
            for name, digest in ring.digests
        ]
        return KeyRing.of(entries)

    def name_of(self, key: str) -> str | None:
        """Return the name that `key` belongs to; takes as long for a wrong key as for a right one.

        A table finds the digest to compare with, so that the time does not grow with the number of keys. Finding
        it tells nothing of use: tables compare keyed 64-bit hashes first, and who does not know the key cannot
        choose its SHA-256.
        """
        digest = hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
        name, known = self._by_digest.get(digest, _NOBODY)
        return name if hmac.compare_digest(digest, known) else None

    def check(self, authorization: str | None) -> str:
        """Return the name of the key in an Authorization header; raises `ApiError` 401."""
        scheme, _, key = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise faults.unauthorized("An API key is needed: send 'Authorization: Bearer KEY'.")
        name = self.name_of(key.strip())
        if name is None:
            raise faults.unauthorized("This API key is not known here.")
        return name


def _entry(path: Path, number: int, line: str) -> tuple[str, bytes, KeyLimits]:
    match = _LINE.fullmatch(line)
    if match is None:
        raise KeysFileError(path, f"line {number} is not 'name:' and 64 hexadecimal digits")
    try:
        limits = _limits(match["words"].split())
    except msgspec.ValidationError as error:
        raise KeysFileError(path, f"line {number}: {error}") from error
    return match["name"], bytes.fromhex(match["digest"]), limits


def _limits(words: Iterable[str]) -> KeyLimits:
    """Read `key=value` words, and the word `disabled`; raises `msgspec.ValidationError`."""
    pairs = (word.partition("=") for word in words)
    found = {key: value if sign else "true" for key, sign, value in pairs}
    return msgspec.convert(found, KeyLimits, strict=False)


def _lower(one: T | None, other: T | None) -> T | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
