"""An authority and what it signs: keys on the curve P-256, signed by ECDSA with SHA-256, as TLS 1.3 has them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from copydesk.cli.certificates.component import Component

AUTHORITY_DAYS = 3650
"""Ten years: to change it is to touch every part at once, and its key is used at no other time than here."""

EARLIER = timedelta(minutes=5)
"""A certificate holds a little before it was made, since clocks differ."""


class AuthorityError(ValueError):
    """A certificate and a key that are no authority; the message says why."""


@dataclass(frozen=True, slots=True)
class Authority:
    """Who signs."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def ends(self) -> datetime:
        """When it ends, and with it all that it has signed."""
        return self.certificate.not_valid_after_utc


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate with its key, both in PEM, and when it ends."""

    certificate: bytes
    key: bytes
    ends: datetime


def new_authority(now: datetime, days: int) -> Authority:
    """Make one that holds for ten years, or for `days` if that is longer."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"Copydesk fleet, {now:%Y-%m-%d}")
    usage = _usage(signs_certificates=True)
    builder = (
        _builder(name, name, key.public_key(), now, now + timedelta(days=max(days, AUTHORITY_DAYS)))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return Authority(builder.sign(key, hashes.SHA256()), key)


def read_authority(certificate: bytes, key: bytes) -> Authority:
    """Read one from PEM; raises `AuthorityError`."""
    try:
        # Of a bundle, as there is one while authorities change, the first is the one that signs.
        read = x509.load_pem_x509_certificates(certificate)[0]
        private = serialization.load_pem_private_key(key, password=None)
    except (ValueError, TypeError) as error:
        raise AuthorityError("expected a certificate and a key in PEM, without a password") from error
    if not isinstance(private, ec.EllipticCurvePrivateKey) or private.public_key() != read.public_key():
        raise AuthorityError("the key does not belong to the certificate")
    return Authority(read, private)


def issue(authority: Authority, component: Component, now: datetime, days: int) -> Issued:
    """Make a key and a certificate for a component; it ends after `days`, and not later than its authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    ends = min(now + timedelta(days=days), authority.ends)
    identifier = authority.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = (
        _builder(_name(component.names[0]), authority.certificate.subject, key.public_key(), now, ends)
        .add_extension(x509.SubjectAlternativeName(list(map(x509.DNSName, component.names))), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(_purposes(component)), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
    )
    signed = builder.sign(authority.key, hashes.SHA256())
    return Issued(pem(signed), private_pem(key), signed.not_valid_after_utc)


def pem(certificate: x509.Certificate) -> bytes:
    """Return a certificate in PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a key in PEM."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, ends: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - EARLIER)
        .not_valid_after(ends)
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _purposes(component: Component) -> list[x509.ObjectIdentifier]:
    serves = [ExtendedKeyUsageOID.SERVER_AUTH] if component.serves else []
    return serves + ([ExtendedKeyUsageOID.CLIENT_AUTH] if component.connects else [])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
