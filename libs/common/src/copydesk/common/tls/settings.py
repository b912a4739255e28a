"""The settings of TLS, for the services to derive theirs from: on RPC, as a server or a client, and on NATS."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from copydesk.common.settings import EXIT_BAD_SETTINGS, ServiceSettings, variable_name
from copydesk.common.tls.credentials import ClientTls, client_tls
from copydesk.common.tls.errors import TlsError
from copydesk.common.tls.files import AUTHORITY, CERTIFICATE, KEY, TlsFiles

KEYS = (CERTIFICATE, KEY, AUTHORITY)


class RpcTlsSettings(ServiceSettings):
    """Of who talks RPC. Either all three files are named, or none."""

    rpc_tls_cert_file: Path | None = Field(
        default=None,
        description="PEM certificate chain shown on RPC; none by default: then it is plain TCP, for loopback.",
    )
    rpc_tls_key_file: Path | None = Field(
        default=None, description="PEM key of that certificate, without a password; read anew when it changes."
    )
    rpc_tls_ca_file: Path | None = Field(
        default=None, description="PEM certificates of the authorities that peers' certificates on RPC must be of."
    )

    @model_validator(mode="after")
    def _all_or_none_for_rpc(self) -> Self:
        _files(self, "rpc")
        return self

    def rpc_tls_files(self) -> TlsFiles | None:
        """Return the files, if RPC is under TLS."""
        return _files(self, "rpc")


class RpcClientTlsSettings(RpcTlsSettings):
    """Of who connects to pods. Pods come and go, so that no certificate names their addresses."""

    rpc_tls_name: str = Field(
        default="copydesk-inference",
        min_length=1,
        description="Name that the certificates of pods must be for, whatever their addresses are.",
    )

    def rpc_tls(self) -> ClientTls | None:
        """Return how to connect to pods; None without TLS. Raises `TlsError`."""
        files = self.rpc_tls_files()
        return client_tls(files, self.rpc_tls_name) if files else None


class NatsTlsSettings(ServiceSettings):
    """Of who connects to NATS. Either all three files are named, or none."""

    nats_tls_cert_file: Path | None = Field(
        default=None,
        description="PEM certificate chain shown to NATS; none by default, as a local server asks for none.",
    )
    nats_tls_key_file: Path | None = Field(
        default=None, description="PEM key of that certificate, without a password; read anew when it changes."
    )
    nats_tls_ca_file: Path | None = Field(
        default=None,
        description="PEM certificates of the authorities that the certificate of NATS must be of; with it, a "
        "server without TLS is refused.",
    )
    nats_tls_name: str = Field(
        default="copydesk-nats",
        description="Name that the certificate of NATS must be for, whatever its address is; empty: the host of "
        "NATS_URL.",
    )

    @model_validator(mode="after")
    def _all_or_none_for_nats(self) -> Self:
        _files(self, "nats")
        return self

    def nats_tls(self) -> ClientTls | None:
        """Return how to connect to NATS; None without TLS. Raises `TlsError`."""
        files = _files(self, "nats")
        return client_tls(files, self.nats_tls_name) if files else None


def refuse_file(error: TlsError) -> int:
    """Say on standard error what is wrong with a file that settings name; return the exit code."""
    print(error, file=sys.stderr)
    return EXIT_BAD_SETTINGS


def _files(settings: ServiceSettings, link: str) -> TlsFiles | None:
    fields = [f"{link}_tls_{key.lower()}" for key in KEYS]
    paths: list[Path | None] = [getattr(settings, field) for field in fields]
    certificate, key, authority = paths
    if certificate is None and key is None and authority is None:
        return None
    if certificate is None or key is None or authority is None:
        names = [variable_name(type(settings), field) for field in fields]
        missing = [name for name, path in zip(names, paths, strict=True) if path is None]
        raise ValueError(f"TLS takes {', '.join(names)} together, and of these {', '.join(missing)} is not set")
    prefix = variable_name(type(settings), f"{link}_tls_")
    return TlsFiles(link, prefix, certificate, key, authority)
