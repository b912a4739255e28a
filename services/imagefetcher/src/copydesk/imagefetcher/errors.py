"""What can go wrong with an image, as errors that carry what and where."""

from __future__ import annotations

from copydesk.common.errors import CopydeskError


class ImageError(CopydeskError):
    """Anything that this service raises on purpose; `hint` says what to do about it, if something can be done."""

    hint: str = ""


class IndexFormatError(ImageError):
    """An index that cannot be used: not in its format, of a later version, or at odds with itself.

    `field` names the part that is wrong, `reason` says how.
    """

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"image index: {field}: {reason}")
        self.field = field
        self.reason = reason


class IndexVersionError(IndexFormatError):
    """An index of a version that this release cannot read."""

    hint = "Update Copydesk on this node, or convert the image again with the release that runs here."

    def __init__(self, version: int, supported: int) -> None:
        super().__init__("version", f"is {version}, this release reads {supported}")
        self.version = version
        self.supported = supported
