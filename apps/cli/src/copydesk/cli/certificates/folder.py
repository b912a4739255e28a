"""The folder of a fleet's certificates: the authority's in `authority`, and one more for each component.

    DIR/authority/{ca.crt,ca.key}
    DIR/gateway/{tls.crt,tls.key,ca.crt}    and so on

Every file may be read by its owner alone, and is replaced as a whole: services that run read them anew.
"""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

from copydesk.cli.certificates.authority import (
    Authority,
    AuthorityError,
    Issued,
    issue,
    new_authority,
    pem,
    private_pem,
    read_authority,
)
from copydesk.cli.certificates.component import COMPONENTS, Component
from copydesk.common.errors import CopydeskError

AUTHORITY = "authority"
CA_CERTIFICATE, CA_KEY = "ca.crt", "ca.key"
CERTIFICATE, KEY = "tls.crt", "tls.key"


class CertificatesError(CopydeskError):
    """The folder cannot be used as it is: `path`, what is wrong with it, and what to do, if that is known."""

    def __init__(self, path: Path, problem: str, hint: str = "") -> None:
        self.path = path
        self.problem = problem
        self.hint = hint
        super().__init__(f"{path}: {problem}")


class Folder:
    """Makes and renews what is in `path`; raises `CertificatesError`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def create(self, now: datetime, days: int) -> tuple[Authority, dict[Component, Issued]]:
        """Make an authority and all certificates where there is none of them yet."""
        for path in self._files():
            if path.exists():
                problem = "is there already, and nothing is overwritten"
                raise CertificatesError(path, problem, "--renew makes new certificates of the same authority")
        authority = new_authority(now, days)
        self._write(AUTHORITY, CA_KEY, private_pem(authority.key))
        self._write(AUTHORITY, CA_CERTIFICATE, pem(authority.certificate))
        return authority, self._issue(authority, now, days)

    def renew(self, now: datetime, days: int) -> tuple[Authority, dict[Component, Issued]]:
        """Make new keys and certificates of the authority that is there."""
        authority = self._authority()
        if authority.ends <= now:
            raise CertificatesError(
                self.path / AUTHORITY / CA_CERTIFICATE,
                f"the authority ended at {authority.ends:%Y-%m-%d %H:%M} UTC",
                "make another in another folder; docs/certificates.md says how parts change over to it",
            )
        return authority, self._issue(authority, now, days)

    def _authority(self) -> Authority:
        folder = self.path / AUTHORITY
        try:
            certificate, key = ((folder / name).read_bytes() for name in (CA_CERTIFICATE, CA_KEY))
        except OSError as error:
            path = Path(error.filename or folder)
            raise CertificatesError(path, error.strerror or str(error), "without --renew one is made") from error
        try:
            return read_authority(certificate, key)
        except AuthorityError as error:
            raise CertificatesError(folder, str(error)) from error

    def _issue(self, authority: Authority, now: datetime, days: int) -> dict[Component, Issued]:
        # With all that is in the authority's file: while authorities change, peers are of two.
        trusted = (self.path / AUTHORITY / CA_CERTIFICATE).read_bytes()
        found = {}
        for component in COMPONENTS:
            found[component] = issued = issue(authority, component, now, days)
            self._write(component.folder, CA_CERTIFICATE, trusted)
            self._write(component.folder, KEY, issued.key)
            self._write(component.folder, CERTIFICATE, issued.certificate)
        return found

    def _files(self) -> list[Path]:
        names = [(AUTHORITY, CA_CERTIFICATE), (AUTHORITY, CA_KEY)]
        names += [(each.folder, name) for each in COMPONENTS for name in (CERTIFICATE, KEY, CA_CERTIFICATE)]
        return [self.path / folder / name for folder, name in names]

    def _write(self, folder: str, name: str, content: bytes) -> None:
        path = self.path / folder / name
        fresh = path.with_name(f".{name}.new")
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            fresh.unlink(missing_ok=True)
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "wb") as file:  # noqa: PTH123 - of a descriptor, which knows its mode from the start
                file.write(content)
            fresh.replace(path)
        except OSError as error:
            raise CertificatesError(path, error.strerror or str(error)) from error
