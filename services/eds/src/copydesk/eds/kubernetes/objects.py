"""What of Kubernetes' objects discovery reads, as they stand on the wire.

Only the fields that are used are decoded; the names are those of the API (https://kubernetes.io/docs/reference/
kubernetes-api/). Absent and null mean the same throughout, as they do for Kubernetes.
"""

from __future__ import annotations

import msgspec

from copydesk.kube.objects import Metadata, Wire


class ServiceSpec(Wire, frozen=True):
    """`ip_families`: IPv4 and IPv6, the Service's primary one first."""

    ip_families: tuple[str, ...] | None = None


class Service(Wire, frozen=True):
    """A Service of core v1."""

    metadata: Metadata
    spec: ServiceSpec | None = None


class SlicePort(Wire, frozen=True):
    """A port of all endpoints of a slice; without a number it says nothing."""

    name: str | None = None
    port: int | None = None
    protocol: str | None = None


class Conditions(Wire, frozen=True):
    """What an endpoint can do; None of `ready` and `serving` means yes, of `terminating` no."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class ObjectReference(Wire, frozen=True):
    """The object behind an endpoint: a Pod, mostly."""

    kind: str | None = None
    namespace: str | None = None
    name: str | None = None
    uid: str | None = None


class SliceEndpoint(Wire, frozen=True):
    """One backend. Only the first of its addresses has a meaning."""

    addresses: tuple[str, ...] | None = None
    conditions: Conditions | None = None
    target_ref: ObjectReference | None = None
    node_name: str | None = None
    zone: str | None = None


class EndpointSlice(Wire, frozen=True):
    """An EndpointSlice of discovery.k8s.io/v1: some of the endpoints of a Service."""

    metadata: Metadata
    address_type: str = "IPv4"
    endpoints: tuple[SliceEndpoint, ...] | None = None
    ports: tuple[SlicePort, ...] | None = None


class ListMetadata(Wire, frozen=True):
    """`continue_` asks for the next page; it is empty on the last."""

    resource_version: str = ""
    continue_: str | None = msgspec.field(default=None, name="continue")


class WatchEvent(msgspec.Struct, frozen=True):
    """A line of a watch: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR, and the object that this is about."""

    type: str
    object: msgspec.Raw


class Bookmark(Wire, frozen=True):
    """The object of a BOOKMARK: all changes up to its `resource_version` have been told."""

    metadata: Metadata
