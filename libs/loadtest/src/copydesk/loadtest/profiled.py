"""Between capacity certificates and model profiles: what a profile takes over, and the way back to the file."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from copydesk.common.profile import CapacityPart, CertificatePart, CurvePoint, Interval, Profile, ProfileError
from copydesk.loadtest.certificate import Certificate, CertificateError, decode

TARGET_SHARE = 0.85
"""Of C*: what the autoscaler loads a pod with at the most while all is quiet (`most_share` of its rules)."""


def capacity_part(
    certificate: Certificate, file: Path, beside: Path, target_share: float = TARGET_SHARE
) -> CapacityPart:
    """Return what a certificate says of one pod, for a profile that is to be written to `beside`.

    `file` is the certificate's, which must be there.

    Raises:
        CertificateError: The file cannot be read.
    """
    try:
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError as error:
        raise CertificateError(str(file), error.strerror or str(error)) from error
    name = os.path.relpath(file.absolute(), beside.absolute().parent)
    pods = certificate.pods
    low, high = certificate.interval
    return CapacityPart(
        max_rate=certificate.rate_per_pod,
        interval=Interval(low / pods, None if high is None else high / pods),
        concurrency=certificate.concurrency_per_pod,
        target_concurrency=target_share * certificate.concurrency_per_pod,
        objective_ms=certificate.slo_ms,
        hardware=certificate.hardware.name,
        miss_share=certificate.miss_share,
        pods=pods,
        curve=tuple(
            CurvePoint(point.concurrency / pods, point.rate / pods)
            for point in certificate.curve
            if point.concurrency <= certificate.concurrency
        ),
        certificate=CertificatePart(file=name, digest=digest),
    )


def certificate_of(profile: Profile, path: Path) -> Certificate:
    """Read the certificate that a profile, which was read from `path`, names.

    Raises:
        ProfileError: It names none, or what it names has changed since.
        CertificateError: It names what is no certificate.
    """
    part = None if profile.capacity is None else profile.capacity.certificate
    if part is None:
        raise ProfileError(str(path), "capacity.certificate", "it is missing, and is needed for latencies")
    file = path.absolute().parent / Path(part.file).expanduser()
    try:
        content = file.read_bytes()
    except OSError as error:
        problem = f"{file}: {error.strerror or error}"
        raise ProfileError(str(path), "capacity.certificate.file", problem) from error
    found = hashlib.sha256(content).hexdigest()
    if found != part.digest:
        problem = f"{file} has the SHA-256 {found}, expected {part.digest}"
        raise ProfileError(str(path), "capacity.certificate.digest", problem)
    certificate = decode(content, str(file))
    certificate.require(str(file), model=profile.model.name, model_digest=profile.model.digest)
    return certificate
