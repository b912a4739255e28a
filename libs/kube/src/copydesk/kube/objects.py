"""The parts of Kubernetes objects that every service reads or writes; the rest of an object is passed over."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

SERVICE_NAME = "kubernetes.io/service-name"
"""The label by which an EndpointSlice names its Service."""

OWN_PREFIX = "copydesk/"
"""How the names of our own labels and annotations begin."""


class Wire(msgspec.Struct, frozen=True, rename="camel"):
    """A part of an object: fields in Kubernetes' camelCase."""


class Metadata(Wire, frozen=True):
    """What every object has; `resource_version` is the revision of the store at which it was last written.

    Of labels and annotations only those that are read are kept: others may have 256 KiB, a whole manifest often.
    """

    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        """Let go of what is not read."""
        for name in ("labels", "annotations"):
            if told := getattr(self, name):
                msgspec.structs.force_setattr(self, name, {key: told[key] for key in told if _is_read(key)})


def _is_read(key: str) -> bool:
    return key.startswith(OWN_PREFIX) or key == SERVICE_NAME


class StatusDetails(Wire, frozen=True):
    """`retry_after_seconds` is how long the server asks to be left alone."""

    retry_after_seconds: int | None = None


class Status(Wire, frozen=True):
    """Why something was refused: `code` is the HTTP status, `reason` a word for programs, `message` for people."""

    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: StatusDetails | None = None


class LeaseSpec(Wire, frozen=True, omit_defaults=True):
    """Who holds a lease; times are RFC 3339 with microseconds."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Wire, frozen=True):
    """A Lease of coordination.k8s.io/v1."""

    metadata: Metadata
    spec: LeaseSpec | None = None
