"""API keys: a file of names and hashes, and the check of a request's key against them."""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass
from pathlib import Path

from copydesk.common.errors import CopydeskError
from copydesk.gateway import faults

_LINE = re.compile(r"(?P<name>[A-Za-z0-9._-]{1,64}):(?P<digest>[0-9a-f]{64})")


class KeysFileError(CopydeskError):
    """A file of keys that cannot be used: it carries the path and the reason."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}")


@dataclass(frozen=True, slots=True)
class KeyRing:
    """The keys that are let in: names, with the SHA-256 of each key.

    A plain hash is enough for keys that are long and random (`openssl rand -hex 32`), not for passwords.
    """

    digests: tuple[tuple[str, bytes], ...]

    @classmethod
    def load(cls, path: Path) -> KeyRing:
        """Read lines `name:sha256-hex`, skipping empty ones and those with #; raises `KeysFileError`."""
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise KeysFileError(path, str(error)) from error
        digests = []
        for number, line in enumerate(lines, start=1):
            if not line.strip() or line.startswith("#"):
                continue
            match = _LINE.fullmatch(line.strip())
            if match is None:
                raise KeysFileError(path, f"line {number} is not 'name:' and 64 hexadecimal digits")
            digests.append((match["name"], bytes.fromhex(match["digest"])))
        if not digests:
            raise KeysFileError(path, "it holds no key")
        return cls(tuple(digests))

    def name_of(self, key: str) -> str | None:
        """Return the name that `key` belongs to; takes as long for a wrong key as for a right one."""
        digest = hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
        found = None
        for name, known in self.digests:
            if hmac.compare_digest(digest, known):
                found = name
        return found

    def check(self, authorization: str | None) -> str:
        """Return the name of the key in an Authorization header; raises `ApiError` 401."""
        scheme, _, key = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise faults.unauthorized("An API key is needed: send 'Authorization: Bearer KEY'.")
        name = self.name_of(key.strip())
        if name is None:
            raise faults.unauthorized("This API key is not known here.")
        return name
