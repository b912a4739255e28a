"""The settings of the xDS server: who may be served where, and what certificates need."""

from __future__ import annotations

from pathlib import Path

import pytest

from copydesk.common.settings import EXIT_BAD_SETTINGS, load_settings
from copydesk.eds.settings import EdsSettings
from copydesk.eds.xds.terms import Terms, Tls, XdsSettingError, terms
from tests.fixtures.certificates import self_signed


def load(monkeypatch: pytest.MonkeyPatch, **values: str) -> EdsSettings:
    for key, value in values.items():
        monkeypatch.setenv(f"COPYDESK_EDS_XDS_{key}", value)
    return load_settings(EdsSettings)


def test_it_is_off_by_default_and_on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(monkeypatch)
    assert (settings.xds_port, settings.xds_host) == (0, "127.0.0.1")
    assert terms(settings) == Terms(slow_start=10.0, max_streams=1000, token="", tls=None)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_asks_for_no_authentication(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    assert load(monkeypatch, PORT="18000", HOST=host).xds_host == host


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "eds.local"])
def test_any_other_address_needs_a_token_or_certificates(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], host: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        load(monkeypatch, PORT="18000", HOST=host)
    assert caught.value.code == EXIT_BAD_SETTINGS
    assert f"COPYDESK_EDS_XDS_HOST='{host}'" in (said := capsys.readouterr().err)
    assert "XDS_TOKEN" in said
    assert load(monkeypatch, TOKEN="secret").xds_host == host
    guarded = {"TLS_CERT_FILE": "c.pem", "TLS_KEY_FILE": "k.pem", "CLIENT_CA_FILE": "ca.pem"}
    assert load(monkeypatch, TOKEN="", **guarded).xds_host == host


@pytest.mark.parametrize("key", ["TLS_CERT_FILE", "TLS_KEY_FILE", "CLIENT_CA_FILE"])
def test_certificates_need_each_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], key: str
) -> None:
    with pytest.raises(SystemExit):
        load(monkeypatch, **{key: "file.pem"})
    assert "XDS_TLS_CERT_FILE" in capsys.readouterr().err


def test_files_are_read_and_one_that_is_not_there_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    certificate, key, ca = (tmp_path / name for name in ("c.pem", "k.pem", "ca.pem"))
    secret, public = self_signed()
    certificate.write_bytes(public)
    key.write_bytes(secret)
    files = {"TLS_CERT_FILE": str(certificate), "TLS_KEY_FILE": str(key)}
    assert terms(load(monkeypatch, **files)).tls == Tls(public, secret)
    with pytest.raises(XdsSettingError, match="No such file") as caught:
        terms(load(monkeypatch, CLIENT_CA_FILE=str(ca)))
    assert caught.value.key == "XDS_CLIENT_CA_FILE"


def test_files_that_are_no_certificates_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    certificate, key, junk = (tmp_path / name for name in ("c.pem", "k.pem", "junk"))
    secret, public = self_signed()
    certificate.write_bytes(public)
    key.write_bytes(secret)
    junk.write_bytes(b"junk")
    for files, named in (
        ({"TLS_CERT_FILE": junk, "TLS_KEY_FILE": key}, "XDS_TLS_CERT_FILE"),
        ({"TLS_CERT_FILE": certificate, "TLS_KEY_FILE": junk}, "XDS_TLS_CERT_FILE"),
        ({"TLS_CERT_FILE": certificate, "TLS_KEY_FILE": key, "CLIENT_CA_FILE": junk}, "XDS_CLIENT_CA_FILE"),
    ):
        with pytest.raises(XdsSettingError, match="junk") as caught:
            terms(load(monkeypatch, **{name: str(file) for name, file in files.items()}))
        assert caught.value.key == named
