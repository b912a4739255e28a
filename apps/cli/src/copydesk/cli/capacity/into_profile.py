"""What a certificate says, as part of the profile of the model that was measured."""

from __future__ import annotations

from pathlib import Path

import msgspec

from copydesk.common.profile import Profile, read_profile, write_profile
from copydesk.loadtest.certificate import Certificate
from copydesk.loadtest.profiled import capacity_part

CERTIFICATE = "capacity.json"
"""Where the certificate goes, beside the profile, if no other place is named."""


def profile_of(path: Path, model: str, digest: str) -> Profile:
    """Read a profile, and make sure that it is of this model with these weights.

    Raises:
        ProfileError: It cannot be read, or is of something else.
    """
    profile = read_profile(path)
    profile.require(str(path), model=model, digest=digest)
    return profile


def write_figures(certificate: Certificate, file: Path, path: Path) -> None:
    """Write what a certificate, which is in `file`, says of a pod into the profile in `path`; the rest stays.

    Raises:
        ProfileError: The profile cannot be read or written, or is of another model.
        CertificateError: The certificate cannot be read.
    """
    profile = profile_of(path, certificate.model, certificate.model_digest)
    write_profile(msgspec.structs.replace(profile, capacity=capacity_part(certificate, file, path)), path)
