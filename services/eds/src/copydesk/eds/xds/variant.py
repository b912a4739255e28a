"""The two variants of the protocol, state of the world and incremental: reading requests, writing responses."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Protocol, TypeVar

from copydesk.eds.xds.discovery_pb2 import DeltaDiscoveryRequest, DiscoveryRequest
from copydesk.eds.xds.resource import Resource, delta_response, whole_response
from copydesk.eds.xds.subscription import Subscription, alter, answer, choose

Request = TypeVar("Request", DiscoveryRequest, DeltaDiscoveryRequest)


class Kind(enum.StrEnum):
    """What a variant is called in logs and metrics; sotw stands for state of the world."""

    SOTW = "sotw"
    DELTA = "delta"


class Variant(Protocol[Request]):
    """What differs between the variants."""

    kind: Kind

    def read(self, data: bytes) -> Request:
        """Decode a request; raise `google.protobuf.message.DecodeError`."""

    def take(self, subscription: Subscription, request: Request) -> Subscription:
        """Apply what a request answers and asks for."""

    def put(self, type_url: str, resources: Iterable[Resource], nonce: str) -> bytes:
        """Encode a response."""


class StateOfWorld:
    """Each request states all names that are wanted."""

    kind = Kind.SOTW

    def read(self, data: bytes) -> DiscoveryRequest:
        """Decode a request."""
        return DiscoveryRequest.FromString(data)

    def take(self, subscription: Subscription, request: DiscoveryRequest) -> Subscription:
        """Apply what a request answers and asks for.

        The names of a request that answers an older response are the newest that the stream stated all the same.
        """
        answered = answer(subscription, request.response_nonce, refused=request.HasField("error_detail"))
        return choose(answered, request.resource_names)

    def put(self, type_url: str, resources: Iterable[Resource], nonce: str) -> bytes:
        """Encode a response."""
        return whole_response(type_url, resources, nonce)


class Incremental:
    """Each request adds and removes names."""

    kind = Kind.DELTA

    def read(self, data: bytes) -> DeltaDiscoveryRequest:
        """Decode a request."""
        return DeltaDiscoveryRequest.FromString(data)

    def take(self, subscription: Subscription, request: DeltaDiscoveryRequest) -> Subscription:
        """Apply what a request answers and asks for."""
        answered = answer(subscription, request.response_nonce, refused=request.HasField("error_detail"))
        return alter(
            answered,
            request.resource_names_subscribe,
            request.resource_names_unsubscribe,
            dict(request.initial_resource_versions),
        )

    def put(self, type_url: str, resources: Iterable[Resource], nonce: str) -> bytes:
        """Encode a response."""
        return delta_response(type_url, resources, nonce)
