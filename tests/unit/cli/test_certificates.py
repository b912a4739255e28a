"""`copydesk certificates`: files for each part, nothing overwritten, the authority kept when they are renewed."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from copydesk.cli.certificates.component import COMPONENTS
from copydesk.cli.commands.certificates import CertificatesRequest, certificates
from copydesk.common.tls import check_files
from tests.fixtures.fleet_certificates import tls_files

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
PURPOSES = {"gateway": 1, "inference": 2, "eds": 1, "autoscaler": 1, "image-fetcher": 1, "nats": 2}


def make(folder: Path, *, days: int = 90, renew: bool = False, now: datetime = NOW) -> int:
    return certificates(CertificatesRequest(folder, days, renew, as_json=True), now)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_each_part_has_files_that_belong_together_and_that_only_its_owner_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert make(tmp_path / "tls") == 0
    told = json.loads(capsys.readouterr().out)
    assert {each["component"] for each in told["certificates"]} == set(PURPOSES)
    assert all(each["ends"] == "2026-05-30T12:00:00+00:00" for each in told["certificates"])
    authority = certificate(tmp_path / "tls" / "authority" / "ca.crt")
    for component in COMPONENTS:
        lifetimes = check_files(tls_files(tmp_path / "tls", component.folder), NOW.timestamp())
        assert lifetimes.certificate == (NOW + timedelta(days=90)).timestamp()
        made = certificate(tmp_path / "tls" / component.folder / "tls.crt")
        made.verify_directly_issued_by(authority)
        purposes = made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert len(list(purposes)) == PURPOSES[component.folder]
        assert ExtendedKeyUsageOID.CLIENT_AUTH in purposes
    files = [path for path in (tmp_path / "tls").rglob("*") if path.is_file()]
    assert len(files) == 2 + 3 * len(COMPONENTS)
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


def test_only_pods_and_nats_may_be_servers_under_the_names_that_are_checked(tmp_path: Path) -> None:
    make(tmp_path)
    for folder, name in (("inference", "copydesk-inference"), ("nats", "copydesk-nats")):
        made = certificate(tmp_path / folder / "tls.crt")
        names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert name in names.get_values_for_type(x509.DNSName)


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "eds").mkdir()
    (tmp_path / "eds" / "tls.key").write_text("mine")
    assert make(tmp_path) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "eds/tls.key: is there already, and nothing is overwritten; --renew" in said
    assert contents(tmp_path) == {"eds/tls.key": b"mine"}


def test_renewing_keeps_the_authority_and_changes_every_key(tmp_path: Path) -> None:
    make(tmp_path)
    before = contents(tmp_path)
    assert make(tmp_path, renew=True, now=NOW + timedelta(days=80)) == 0
    after = contents(tmp_path)
    assert after.keys() == before.keys()
    kept = {name for name in after if after[name] == before[name]}
    assert kept == {"authority/ca.crt", "authority/ca.key"} | {name for name in after if name.endswith("ca.crt")}
    lifetimes = check_files(tls_files(tmp_path, "gateway"), (NOW + timedelta(days=100)).timestamp())
    assert lifetimes.certificate == (NOW + timedelta(days=170)).timestamp()


def test_a_bundle_of_two_authorities_is_handed_on_while_the_first_signs(tmp_path: Path) -> None:
    make(tmp_path / "old")
    make(tmp_path / "new")
    bundle = tmp_path / "new" / "authority" / "ca.crt"
    bundle.write_bytes(bundle.read_bytes() + (tmp_path / "old" / "authority" / "ca.crt").read_bytes())
    assert make(tmp_path / "new", renew=True) == 0
    assert (tmp_path / "new" / "eds" / "ca.crt").read_bytes() == bundle.read_bytes()
    new = x509.load_pem_x509_certificates(bundle.read_bytes())[0]
    certificate(tmp_path / "new" / "eds" / "tls.crt").verify_directly_issued_by(new)


def test_no_certificate_outlives_its_authority_and_one_that_ended_signs_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path)
    ends = certificate(tmp_path / "authority" / "ca.crt").not_valid_after_utc
    make(tmp_path, renew=True, days=3650, now=ends - timedelta(days=1))
    assert certificate(tmp_path / "eds" / "tls.crt").not_valid_after_utc == ends
    assert make(tmp_path, renew=True, now=ends) == 2
    assert "the authority ended at" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda folder: (folder / "ca.key").unlink(), "No such file or directory; without --renew one is made"),
        (lambda folder: (folder / "ca.key").write_text("key"), "expected a certificate and a key in PEM"),
        (
            lambda folder: (folder / "ca.key").write_bytes((folder.parent / "eds" / "tls.key").read_bytes()),
            "the key does not belong to the certificate",
        ),
    ],
)
def test_renewing_needs_the_authority(
    tmp_path: Path, spoil: object, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path)
    assert callable(spoil)
    spoil(tmp_path / "authority")
    assert make(tmp_path, renew=True) == 2
    assert problem in " ".join(capsys.readouterr().err.split())
