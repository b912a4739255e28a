"""Why a resource is listed again, by what went wrong before."""

from __future__ import annotations

import enum

from copydesk.kube.trouble import (
    ExpiredError,
    KubernetesError,
    NonsenseError,
    RefusedError,
    UnreachableError,
)


class SilentError(KubernetesError):
    """A watch said nothing for too long, not even that nothing happened."""


class Reason(enum.StrEnum):
    """Why a resource is listed."""

    START = "start"
    EXPIRED = "expired"
    SILENT = "silent"
    NONSENSE = "nonsense"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    FAULT = "fault"


def reason_of(error: Exception) -> Reason:
    """Name the kind of `error`."""
    match error:
        case ExpiredError():
            return Reason.EXPIRED
        case SilentError():
            return Reason.SILENT
        case NonsenseError():
            return Reason.NONSENSE
        case RefusedError():
            return Reason.REFUSED
        case UnreachableError():
            return Reason.UNREACHABLE
    return Reason.FAULT
