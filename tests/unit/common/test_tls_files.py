"""What is wrong with a file of TLS is said with its variable; what is renewed is used, what ends told in time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import structlog
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from prometheus_client import CollectorRegistry

from copydesk.common.settings import load_settings
from copydesk.common.tls import Credentials, Expiries, TlsError, TlsFiles, client_context, expiry_watched
from copydesk.common.tls.settings import NatsTlsSettings, RpcClientTlsSettings
from tests.fixtures.fleet_certificates import make_certificates, tls_files, variables

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
DAY = 86_400.0


class Clock:
    """Seconds since 1970, as a test sets them."""

    def __init__(self) -> None:
        self.now = NOW.timestamp()

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_certificates(tmp_path / "fleet", days=30, now=NOW)


@pytest.fixture
def files(folder: Path) -> TlsFiles:
    return tls_files(folder, "gateway")


def encrypt(path: Path) -> None:
    key = load_pem_private_key(path.read_bytes(), None)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")))


@pytest.mark.parametrize(
    ("name", "spoil", "variable", "problem"),
    [
        ("tls.crt", Path.unlink, "CERT_FILE", "No such file or directory"),
        ("tls.key", Path.unlink, "KEY_FILE", "No such file or directory"),
        ("ca.crt", Path.unlink, "CA_FILE", "No such file or directory"),
        ("tls.crt", lambda path: path.write_bytes(b"\x30\x82"), "CERT_FILE", "expected certificates in PEM"),
        ("tls.key", lambda path: path.write_text(""), "KEY_FILE", "expected a private key in PEM"),
        ("ca.crt", lambda path: path.write_text("ca"), "CA_FILE", "expected certificates in PEM"),
        ("tls.key", encrypt, "KEY_FILE", "the key is encrypted"),
        (
            "tls.key",
            lambda path: path.write_bytes((path.parents[1] / "eds" / "tls.key").read_bytes()),
            "KEY_FILE",
            "the key does not belong to the certificate in ",
        ),
        (
            "ca.crt",
            lambda path: path.write_bytes((path.parent / "tls.crt").read_bytes()),
            "CA_FILE",
            "is none of an authority",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_told_with_its_variable(
    files: TlsFiles, name: str, spoil: Callable[[Path], object], variable: str, problem: str
) -> None:
    path = files.certificate.parent / name
    spoil(path)
    with pytest.raises(TlsError) as caught:
        Credentials(files, client_context, Clock())
    assert str(caught.value).startswith(f"COPYDESK_TEST_RPC_TLS_{variable}: {path}: ")
    assert problem in caught.value.problem


@pytest.mark.parametrize(
    ("days", "variable", "problem"),
    [
        (31, "CERT_FILE", "the certificate ended at 2026-03-31 12:00 UTC"),
        (-1, "CERT_FILE", "begins at 2026-03-01 11:55 UTC, and this machine's clock says 2026-02-28 12:00 UTC"),
    ],
)
def test_a_certificate_of_another_time_is_refused(files: TlsFiles, days: int, variable: str, problem: str) -> None:
    clock = Clock()
    clock.now += days * DAY
    with pytest.raises(TlsError, match="COPYDESK_TEST_RPC_TLS_" + variable) as caught:
        Credentials(files, client_context, clock)
    assert problem in caught.value.problem


def test_an_authority_that_has_ended_is_refused_unless_another_is_beside_it(
    tmp_path: Path, files: TlsFiles
) -> None:
    old = make_certificates(tmp_path / "old", now=NOW - timedelta(days=4000)) / "authority" / "ca.crt"
    current = files.authority.read_bytes()
    files.authority.write_bytes(old.read_bytes())
    with pytest.raises(TlsError, match=r"CA_FILE: .* the certificate ended at 202"):
        Credentials(files, client_context, Clock())
    files.authority.write_bytes(old.read_bytes() + current)
    assert Credentials(files, client_context, Clock()).lifetimes.authority > NOW.timestamp()


def test_what_has_not_changed_is_not_read_again_and_what_has_is(tmp_path: Path, files: TlsFiles) -> None:
    credentials = Credentials(files, client_context, Clock())
    first = credentials.context()
    assert credentials.context() is first
    later = make_certificates(tmp_path / "later", days=60, now=NOW) / "gateway"
    for path in (files.certificate, files.key, files.authority):
        (later / path.name).replace(path)
    assert credentials.context() is not first
    assert credentials.lifetimes.certificate == NOW.timestamp() + 60 * DAY


def test_half_of_a_renewal_is_told_once_and_leaves_what_was_in_force(tmp_path: Path, files: TlsFiles) -> None:
    credentials = Credentials(files, client_context, Clock())
    first = credentials.context()
    later = make_certificates(tmp_path / "later", now=NOW) / "gateway"
    with structlog.testing.capture_logs() as logs:
        (later / "tls.key").replace(files.key)
        assert credentials.context() is first
        assert credentials.context() is first
        (later / "tls.crt").replace(files.certificate)
        assert credentials.context() is not first
    assert [entry["event"] for entry in logs] == ["tls_files_unusable", "tls_files_renewed"]
    assert "the key does not belong" in logs[0]["error"]


def test_what_ends_within_two_weeks_is_warned_of_once_a_day_until_it_is_renewed(
    tmp_path: Path, files: TlsFiles
) -> None:
    clock = Clock()
    expiries = Expiries([Credentials(files, client_context, clock)], clock)
    warned = []
    with structlog.testing.capture_logs() as logs:
        for hour in range(20 * 24):
            clock.now = NOW.timestamp() + hour * 3600.0
            if hour == 18 * 24:
                later = make_certificates(tmp_path / "later", days=90, now=NOW) / "gateway"
                for path in (files.key, files.certificate, files.authority):
                    (later / path.name).replace(path)
            expiries.look()
            warned += [
                (hour // 24, entry["days"]) for entry in logs if entry["event"] == "tls_certificate_ends_soon"
            ]
            logs.clear()
    assert warned == [(16, 13), (17, 12)]


async def test_the_metric_tells_both_ends_while_it_is_watched(files: TlsFiles) -> None:
    registry = CollectorRegistry(auto_describe=True)
    credentials = Credentials(files, client_context, Clock())
    name = "copydesk_eds_tls_certificate_expiry_timestamp_seconds"
    async with expiry_watched("eds", [credentials], registry):
        labels = {"link": "rpc", "part": "certificate"}
        assert registry.get_sample_value(name, labels) == NOW.timestamp() + 30 * DAY
        assert registry.get_sample_value(name, labels | {"part": "authority"}) == credentials.lifetimes.authority
    assert registry.get_sample_value(name, labels) is None


class BothSettings(RpcClientTlsSettings, NatsTlsSettings, env_prefix="COPYDESK_BOTH_"):
    pass


def test_without_settings_there_is_no_tls() -> None:
    settings = load_settings(BothSettings)
    assert settings.rpc_tls() is None
    assert settings.nats_tls() is None


def test_settings_name_the_files_of_each_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_certificates(tmp_path)
    for name, value in variables(folder, "eds", "COPYDESK_BOTH_", "RPC", "NATS").items():
        monkeypatch.setenv(name, value)
    settings = load_settings(BothSettings)
    rpc, nats = settings.rpc_tls(), settings.nats_tls()
    assert rpc is not None
    assert nats is not None
    assert (rpc.name, nats.name) == ("copydesk-inference", "copydesk-nats")
    assert (rpc.credentials.files.link, nats.credentials.files.link) == ("rpc", "nats")


@pytest.mark.parametrize("link", ["RPC", "NATS"])
def test_some_of_the_files_are_no_tls_and_no_plain_text_either(
    link: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in variables(tmp_path, "eds", "COPYDESK_BOTH_", link).items():
        if not name.endswith("KEY_FILE"):
            monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as caught:
        load_settings(BothSettings)
    assert caught.value.code == 2
    assert f"and of these COPYDESK_BOTH_{link}_TLS_KEY_FILE is not set" in capsys.readouterr().err
