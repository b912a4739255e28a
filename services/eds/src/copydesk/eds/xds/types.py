"""Names of Envoy's data plane API, as they stand on the wire."""

from __future__ import annotations

_PREFIX = "type.googleapis.com/envoy."

ENDPOINTS = f"{_PREFIX}config.endpoint.v3.ClusterLoadAssignment"
"""The type of an assignment: the endpoints of one cluster. Ours has the name of its model."""

AGGREGATED_SERVICE = "envoy.service.discovery.v3.AggregatedDiscoveryService"
ENDPOINT_SERVICE = "envoy.service.endpoint.v3.EndpointDiscoveryService"
