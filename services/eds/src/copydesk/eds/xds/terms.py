"""On what terms the xDS server serves, from the settings; no gRPC is loaded for it."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from copydesk.common.errors import CopydeskError
from copydesk.eds.settings import EdsSettings


class XdsSettingError(CopydeskError):
    """The server cannot start with a setting, of that `key`; `problem` says why."""

    def __init__(self, key: str, problem: str) -> None:
        self.key = key
        self.problem = problem
        super().__init__(problem)


@dataclass(frozen=True, slots=True)
class Tls:
    """Certificate chain and key of the server, in PEM; with `client_ca`, clients need a certificate of its."""

    certificate: bytes
    key: bytes
    client_ca: bytes | None = None


@dataclass(frozen=True, slots=True)
class Terms:
    """Who may subscribe, and how a pod's weight grows: `slow_start` in seconds; an empty `token` asks for none."""

    slow_start: float = 10.0
    max_streams: int = 1_000
    token: str = ""
    tls: Tls | None = None


def terms(settings: EdsSettings) -> Terms:
    """Read what the settings name; raise `XdsSettingError` for a file that cannot be read."""
    return Terms(
        slow_start=settings.xds_slow_start_ms / 1000,
        max_streams=settings.xds_max_streams,
        token=settings.xds_token.get_secret_value(),
        tls=_tls(settings),
    )


def _tls(settings: EdsSettings) -> Tls | None:
    if settings.xds_tls_cert_file is None or settings.xds_tls_key_file is None:
        return None
    ca = settings.xds_client_ca_file
    _check(settings.xds_tls_cert_file, settings.xds_tls_key_file, ca)
    return Tls(
        certificate=_read("XDS_TLS_CERT_FILE", settings.xds_tls_cert_file),
        key=_read("XDS_TLS_KEY_FILE", settings.xds_tls_key_file),
        client_ca=None if ca is None else _read("XDS_CLIENT_CA_FILE", ca),
    )


def _check(certificate: Path, key: Path, ca: Path | None) -> None:
    """Raise `XdsSettingError` for what gRPC would refuse without a reason, or take and then serve nobody."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # A key with a password is asked for on the terminal otherwise.
        context.load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        problem = f"{certificate} is no PEM certificate that fits {key}: {error.reason or error}"
        raise XdsSettingError("XDS_TLS_CERT_FILE", problem) from error
    except OSError:
        pass  # a file that cannot be read is named by whoever reads it
    if ca is None:
        return
    try:
        context.load_verify_locations(ca)
    except ssl.SSLError as error:
        problem = f"{ca} has no PEM certificates: {error.reason or error}"
        raise XdsSettingError("XDS_CLIENT_CA_FILE", problem) from error
    except OSError:
        pass


def _read(key: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise XdsSettingError(key, f"{path}: {error.strerror}") from error
