"""Why a sector could not be had."""

from __future__ import annotations

import enum

from copydesk.imagefetcher.errors import ImageError


class Fault(enum.StrEnum):
    """What a source did wrong."""

    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    REFUSED = "refused"
    LENGTH = "length"
    DIGEST = "digest"
    ABSENT = "absent"


class SourceError(ImageError):
    """One source has failed to give a sector: it carries the source's name, the fault and details."""

    def __init__(self, source: str, fault: Fault, detail: str = "") -> None:
        self.source = source
        self.fault = fault
        self.detail = detail
        super().__init__(f"{source}: {fault.value}{f': {detail}' if detail else ''}")


class FetchError(ImageError):
    """Every source has failed, as often as is tried: it carries the sector's digest and the last failure."""

    hint = "The reader gets EIO. See `last` for what the last source did, and whether the registry can be reached."

    def __init__(self, digest: str, last: SourceError | None) -> None:
        self.digest = digest
        self.last = last
        super().__init__(f"{digest} cannot be fetched: {last or 'there is no source'}")
