"""What a fleet can hold, as a file: measured by `copydesk capacity`, read by the autoscaler and the simulator.

A certificate holds for one model with one configuration on one kind of hardware. Whoever acts on it says what it
is about to run and calls `Certificate.require`: a target that was measured on other hardware is no target.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec

from copydesk.common.errors import CopydeskError
from copydesk.common.whole_file import replace_file

VERSION = 1
"""Of the file. A reader refuses what is newer: a field that it does not know may change the meaning."""


LEAST, LARGEST = 1e-6, 1e12
"""Of any figure: what is beyond was measured of nothing, and overflows where it is divided."""


class CertificateError(CopydeskError):
    """A certificate that cannot be read, contradicts itself, or is not for what it is to be used for.

    `source` says which one (a path), `reason` what is wrong. It is the user's input: commands exit with 2.
    """

    exit_code = 2

    def __init__(self, source: str, reason: str) -> None:
        self.source = source
        self.reason = reason
        super().__init__(f"{source}: {reason}")


class Hardware(msgspec.Struct, frozen=True, kw_only=True):
    """What the pods ran on. `name` is what is compared: a processor or an accelerator, as its vendor calls it.

    `cores` are those of one machine; `instructions` the ones that matter to the engine. 0 and "" mean not known.
    """

    name: str
    cores: int = 0
    instructions: tuple[str, ...] = ()
    memory_gib: float = 0.0
    system: str = ""


class Interval(NamedTuple):
    """A confidence interval, both ends included; `high` is None where nothing was seen to be too much."""

    low: float
    high: float | None


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What a certificate rests on.

    In the trial that confirmed the rate, `misses` of `requests` were not answered well within the objective, so
    that their share is below `miss_bound` with 95 % confidence, were they independent. In all trials up to that
    rate, of `requests_up_to` requests, `faults` were refused or failed; `fault_bound` is the same bound on their
    share. It takes 30,000 requests without a fault to show that less than 0.01 % are.
    """

    requests: int
    misses: int
    miss_bound: float
    requests_up_to: int
    faults: int
    fault_bound: float


class CurvePoint(msgspec.Struct, frozen=True, kw_only=True):
    """One load that was measured: requests a second, the mean number in flight, and their latency."""

    rate: float
    concurrency: float
    p50_ms: float
    p99_ms: float


class Certificate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `pods` pods of a model held together, with P(latency > `slo_ms`) below `miss_share`.

    `rate` is the maximum sustainable rate R* in requests a second, `interval` its 95 % confidence interval,
    `concurrency` the mean number of requests in flight at that rate, C*. All three, and `curve`, are those of the
    whole fleet that was measured; `rate_per_pod` and `concurrency_per_pod` are of one pod. `curve` ascends in
    concurrency and holds loads that the fleet kept up with, those past `slo_ms` among them.

    `model_digest` names the weights, `config_digest` the settings in `config` (see `digest_of`). `bounded_by` says
    what kept `rate` from being higher: "fleet"; "limit" where the search was told to go no further, or "generator"
    where the requests could not be sent in time: then the fleet may hold more. `made_at` is in Unix seconds.
    """

    version: int = VERSION
    model: str
    model_digest: str
    config_digest: str
    hardware: Hardware
    slo_ms: float
    rate: float
    concurrency: float
    interval: Interval
    curve: tuple[CurvePoint, ...]
    made_at: float
    pods: int = 1
    config: dict[str, str] = {}
    bounded_by: str = "fleet"
    url: str = ""
    miss_share: float = 0.01
    evidence: Evidence | None = None

    @property
    def rate_per_pod(self) -> float:
        """R* of one pod, in requests a second."""
        return self.rate / self.pods

    @property
    def concurrency_per_pod(self) -> float:
        """C* of one pod, in requests."""
        return self.concurrency / self.pods

    def require(
        self, source: str, *, model: str = "", model_digest: str = "", config_digest: str = "", hardware: str = ""
    ) -> None:
        """Make sure that this certificate is for what is to be run; what is left empty is not compared.

        Raises:
            CertificateError: It is for another model, other weights, another configuration or other hardware.
        """
        for what, wanted, found in (
            ("model", model, self.model),
            ("weights (digest)", model_digest, self.model_digest),
            ("configuration (digest)", config_digest, self.config_digest),
            ("hardware", hardware, self.hardware.name),
        ):
            if wanted and wanted != found:
                raise CertificateError(source, f"made for another {what}: {found!r}, and this is {wanted!r}")


def encode(certificate: Certificate) -> bytes:
    """Return the certificate as the bytes of its file."""
    return msgspec.json.format(msgspec.json.encode(certificate), indent=2) + b"\n"


def decode(content: bytes, source: str) -> Certificate:
    """Read a certificate; `source` names it in errors.

    Raises:
        CertificateError: It is none, is of a newer version, or contradicts itself.
    """
    try:
        version = msgspec.json.decode(content, type=_Versioned).version
        if version != VERSION:
            raise CertificateError(source, f"version {version} of a capacity certificate, expected {VERSION}")
        certificate = msgspec.json.decode(content, type=Certificate)
    except (msgspec.DecodeError, RecursionError) as error:
        raise CertificateError(source, f"no capacity certificate: {error}") from error
    fault = _fault(certificate)
    if fault:
        raise CertificateError(source, fault)
    return certificate


def read_certificate(path: Path) -> Certificate:
    """Read the certificate in a file.

    Raises:
        CertificateError: The file cannot be read, or `decode` refuses what is in it.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CertificateError(str(path), error.strerror or str(error)) from error
    return decode(content, str(path))


def write_certificate(certificate: Certificate, path: Path) -> None:
    """Write a certificate in one step: whoever reads the file finds the old one or the new one, whole.

    Raises:
        CertificateError: The file cannot be written.
    """
    try:
        replace_file(path, encode(certificate))
    except OSError as error:
        raise CertificateError(str(path), error.strerror or str(error)) from error


def digest_of(config: Mapping[str, str]) -> str:
    """Return the SHA-256, in hex, of a configuration: the same settings give the same digest, in any order."""
    return hashlib.sha256(msgspec.json.encode(dict(config), order="sorted")).hexdigest()


class _Versioned(msgspec.Struct, frozen=True):
    version: int


def _fault(certificate: Certificate) -> str:
    """Say what cannot be in a certificate, "" if nothing."""
    names = ("slo_ms", "miss_share", "rate", "concurrency", "pods")
    positive = {name: getattr(certificate, name) for name in names}
    for name, value in positive.items():
        if not LEAST <= value <= LARGEST:
            return f"{name} is {str(value)[:40]}, expected a finite number above 0 ({LEAST:g} to {LARGEST:g})"
    low, high = certificate.interval
    if not 0 <= low <= certificate.rate <= (math.inf if high is None else high):
        return f"interval is {low:g} to {high}, expected to hold the rate, {certificate.rate:g}"
    if not certificate.curve:
        return "curve is empty, expected at least one point"
    if any(not min(point.rate, point.concurrency, point.p50_ms, point.p99_ms) > 0 for point in certificate.curve):
        return "curve has a point that is not above 0 in all its figures"
    if any(before.concurrency >= after.concurrency for before, after in pairwise(certificate.curve)):
        return "curve does not ascend in concurrency"
    return ""
