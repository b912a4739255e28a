"""How to talk to registries: one set of options for all requests of a command or daemon."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from copydesk.imagefetcher.errors import ImageError
from copydesk.imagefetcher.registry.credentials import CredentialStore
from copydesk.imagefetcher.registry.errors import PlainHttpRefusedError
from copydesk.imagefetcher.registry.reference import is_loopback


class CertificateError(ImageError):
    """A file of certificates that cannot be used."""

    hint = "Name a file of certificates in PEM form."


@dataclass(frozen=True, slots=True)
class RegistryOptions:
    """`plain_http`: no TLS to registries on this machine. `plain_http_hosts`: nor to these, wherever they are.

    `authorities`: a file of certificates (PEM) to trust instead of the system's. `attempts` is how often a request
    is tried, `timeout` how long one may be silent, in seconds; a retry waits `first_wait` seconds, then twice as
    long each time, up to `longest_wait`.
    """

    credentials: CredentialStore = field(default_factory=CredentialStore.of_environment)
    plain_http: bool = False
    plain_http_hosts: frozenset[str] = frozenset()
    authorities: Path | None = None
    attempts: int = 5
    timeout: float = 30.0
    connect_timeout: float = 10.0
    first_wait: float = 0.25
    longest_wait: float = 8.0
    headers: Mapping[str, str] = field(default_factory=lambda: {"User-Agent": "copydesk-imagefetcher"})

    def base_url(self, host: str) -> str:
        """Where the registry at `host` answers; raises PlainHttpRefusedError for one that must have TLS."""
        if host in self.plain_http_hosts:
            return f"http://{host}"
        if not self.plain_http:
            return f"https://{host}"
        if not is_loopback(host):
            raise PlainHttpRefusedError(host, "is not on this machine, --plain-http is for registries that are")
        return f"http://{host}"

    def tls(self) -> ssl.SSLContext:
        """Whom to trust; raises CertificateError."""
        if self.authorities is None:
            return ssl.create_default_context()
        try:
            return ssl.create_default_context(cafile=str(self.authorities))
        except (OSError, ssl.SSLError) as error:
            raise CertificateError(f"{self.authorities}: {error}") from error
