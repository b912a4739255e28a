"""The three files of TLS on one kind of link, and everything that can be found wrong with them before use.

OpenSSL says of most faults neither in which file they are nor what was expected, and some (an authority that has
ended) it leaves to each connection to find. So the files are looked at here first.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from copydesk.common.tls.errors import TlsError

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

CERTIFICATE, KEY, AUTHORITY = "CERT_FILE", "KEY_FILE", "CA_FILE"

Signature = tuple[tuple[int, int, int], ...]
"""Of each file when it was changed (ns), its size and its inode; a file that is not there counts as zeros."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Certificate chain, its key, and the certificates of the authorities that peers' must be of; all in PEM.

    `link` is what they are for (`rpc`, `nats`), `prefix` what the variables that name them begin with, as
    `COPYDESK_EDS_RPC_TLS_`.
    """

    link: str
    prefix: str
    certificate: Path
    key: Path
    authority: Path

    def error(self, key: str, problem: str) -> TlsError:
        """Return the error of the file that the variable with that `key` names."""
        path = {CERTIFICATE: self.certificate, KEY: self.key, AUTHORITY: self.authority}[key]
        return TlsError(f"{self.prefix}{key}", path, problem)

    def signature(self) -> Signature:
        """Return what changes when a file does, also where a mounted secret is a link that is turned round."""
        return tuple(_stamp(path) for path in (self.certificate, self.key, self.authority))


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """When the certificate and the last of the authorities end, in seconds since 1970."""

    certificate: float
    authority: float

    @property
    def first_end(self) -> float:
        """When connections begin to fail."""
        return min(self.certificate, self.authority)


def check_files(files: TlsFiles, now: float) -> Lifetimes:
    """Read all three files; raise `TlsError` for the first fault of any, also for what has ended by `now`."""
    chain = _certificates(files, CERTIFICATE, files.certificate)
    _check_key(files, chain[0])
    authorities = _certificates(files, AUTHORITY, files.authority)
    _check_dates(files, CERTIFICATE, chain[0], now)
    if not all(_is_authority(each) for each in authorities):
        raise files.error(AUTHORITY, "a certificate in it is none of an authority (basic constraint CA)")
    last = max(authorities, key=lambda each: each.not_valid_after_utc)
    _check_dates(files, AUTHORITY, last, now)
    return Lifetimes(_ends(chain[0]), _ends(last))


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0, 0
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read(files: TlsFiles, key: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise files.error(key, error.strerror or str(error)) from error


def _certificates(files: TlsFiles, key: str, path: Path) -> list[Certificate]:
    # Here and below: only who uses TLS pays for cryptography.
    from cryptography.x509 import load_pem_x509_certificates

    try:
        return load_pem_x509_certificates(_read(files, key, path))
    except ValueError:
        raise files.error(key, "expected certificates in PEM, and there are none") from None


def _check_key(files: TlsFiles, certificate: Certificate) -> None:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    content = _read(files, KEY, files.key)
    try:
        key = load_pem_private_key(content, password=None)
    except TypeError:
        raise files.error(KEY, "the key is encrypted; expected one without a password") from None
    except (ValueError, UnsupportedAlgorithm):
        raise files.error(KEY, "expected a private key in PEM, and there is none") from None
    if key.public_key() != certificate.public_key():
        raise files.error(KEY, f"the key does not belong to the certificate in {files.certificate}")


def _is_authority(certificate: Certificate) -> bool:
    from cryptography.x509 import BasicConstraints, ExtensionNotFound

    try:
        return bool(certificate.extensions.get_extension_for_class(BasicConstraints).value.ca)
    except (ExtensionNotFound, ValueError):
        return False


def _check_dates(files: TlsFiles, key: str, certificate: Certificate, now: float) -> None:
    if now >= _ends(certificate):
        raise files.error(key, f"the certificate ended at {_shown(certificate.not_valid_after_utc)}")
    if now < certificate.not_valid_before_utc.timestamp():
        clock = _shown(datetime.fromtimestamp(now, UTC))
        begins = _shown(certificate.not_valid_before_utc)
        raise files.error(key, f"the certificate begins at {begins}, and this machine's clock says {clock}")


def _ends(certificate: Certificate) -> float:
    return certificate.not_valid_after_utc.timestamp()


def _shown(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M UTC")
