"""From a model's endpoints to a `ClusterLoadAssignment`: by zone, with health, weight and metadata.

What a client would reject, and the whole assignment with it, is left out: addresses that are no IP (Envoy resolves
no names for endpoint discovery) and addresses that stand there twice (gRPC refuses them, gRFC A27).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from functools import lru_cache

from google.protobuf.struct_pb2 import Struct
from google.protobuf.wrappers_pb2 import UInt32Value

from copydesk.common.messages import Endpoint, EndpointState
from copydesk.eds.roster import MAX_PODS, Listing
from copydesk.eds.xds import discovery_pb2 as pb
from copydesk.eds.xds.resource import delimited

METADATA = "envoy.lb"
"""Where metadata stands: in this namespace Envoy can choose among endpoints by it (subsets)."""

HEALTH = {
    EndpointState.READY: pb.HEALTHY,
    EndpointState.WARMING: pb.UNHEALTHY,
    EndpointState.DRAINING: pb.DRAINING,
}

# Of several with one address: who can take work, before who will, before who did.
_PREFERENCE = (EndpointState.READY, EndpointState.WARMING, EndpointState.DRAINING)

_ENDPOINTS_OF_ASSIGNMENT = pb.ClusterLoadAssignment.ENDPOINTS_FIELD_NUMBER
_ENDPOINTS_OF_ZONE = pb.LocalityLbEndpoints.LB_ENDPOINTS_FIELD_NUMBER


def assignable(listing: Listing) -> tuple[Listing, Listing]:
    """Split `listing` into what can stand in an assignment, and what cannot; both stay ordered by id."""
    by_address: dict[tuple[str, int], Endpoint] = {}
    for endpoint in sorted(listing, key=_rank):
        if (host := ip_address(endpoint.host)) is not None:
            by_address.setdefault((host, endpoint.port), endpoint)
    chosen = {endpoint.id for endpoint in by_address.values()}
    kept = tuple(endpoint for endpoint in listing if endpoint.id in chosen)
    return kept, tuple(endpoint for endpoint in listing if endpoint.id not in chosen)


def assignment(model: str, listing: Listing, weigh: Callable[[Endpoint], int]) -> bytes:
    """Encode the assignment of `model`; `weigh` says what an endpoint counts, from 1 to 100."""
    zones: dict[str, list[Endpoint]] = {}
    for endpoint in listing:
        zones.setdefault(endpoint.zone, []).append(endpoint)
    head = pb.ClusterLoadAssignment(cluster_name=model).SerializeToString()
    return head + b"".join(_zone(zone, zones[zone], weigh) for zone in sorted(zones))


@lru_cache(maxsize=2 * MAX_PODS)
def ip_address(host: str) -> str | None:
    """Return `host` in its usual spelling if it is an IP address without a zone index, else None."""
    try:
        return None if "%" in host else str(ipaddress.ip_address(host))
    except ValueError:
        return None


def _rank(endpoint: Endpoint) -> tuple[int, float, str]:
    return _PREFERENCE.index(endpoint.state), -endpoint.started_at, endpoint.id


def _zone(zone: str, endpoints: Iterable[Endpoint], weigh: Callable[[Endpoint], int]) -> bytes:
    parts = []
    total = 0
    for endpoint in endpoints:
        weight = weigh(endpoint)
        total += weight if endpoint.state is EndpointState.READY else 0
        parts.append(_endpoint(endpoint, weight))
    # gRPC leaves out a zone without a weight.
    head = pb.LocalityLbEndpoints(
        locality=pb.Locality(zone=zone), load_balancing_weight=UInt32Value(value=max(1, total))
    )
    return delimited(_ENDPOINTS_OF_ASSIGNMENT, head.SerializeToString() + b"".join(parts))


@lru_cache(maxsize=2 * MAX_PODS)
def _endpoint(endpoint: Endpoint, weight: int) -> bytes:
    metadata = Struct()
    metadata.update(
        {
            "pod": endpoint.id,
            "state": endpoint.state.value,
            "protocol": endpoint.protocol.value,
            "started_at": endpoint.started_at,
        }
    )
    if endpoint.node:
        metadata["node"] = endpoint.node
    message = pb.LbEndpoint(
        endpoint=pb.Endpoint(
            address=pb.Address(
                socket_address=pb.SocketAddress(
                    address=ip_address(endpoint.host) or endpoint.host, port_value=endpoint.port
                )
            )
        ),
        health_status=HEALTH[endpoint.state],
        metadata=pb.Metadata(filter_metadata={METADATA: metadata}),
        load_balancing_weight=UInt32Value(value=weight),
    )
    return delimited(_ENDPOINTS_OF_ZONE, message.SerializeToString(deterministic=True))
