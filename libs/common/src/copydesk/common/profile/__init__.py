"""The model profile: what is known of a model before it serves, in one file that everything else reads.

It is made by measuring (`copydesk model onboard`) and read by gateway, autoscaler, pods and `copydesk up`. It
names the weights by their digest, so that nobody acts on the figures of another model.
"""

from copydesk.common.profile.errors import ProfileError
from copydesk.common.profile.file import encode_profile, profile_of, read_profile, write_profile
from copydesk.common.profile.parts import (
    VERSION,
    CapacityPart,
    CertificatePart,
    CurvePoint,
    EnginePart,
    Interval,
    ModelPart,
    PrecisionPart,
    Profile,
    PromptPart,
    QualityPart,
)

__all__ = [
    "VERSION",
    "CapacityPart",
    "CertificatePart",
    "CurvePoint",
    "EnginePart",
    "Interval",
    "ModelPart",
    "PrecisionPart",
    "Profile",
    "ProfileError",
    "PromptPart",
    "QualityPart",
    "encode_profile",
    "profile_of",
    "read_profile",
    "write_profile",
]
