"""gRPC's own xDS client, stricter than Envoy, accepts the assignments and goes by them.

It wants a listener with a route and a cluster first, which discovery does not serve; those come from this test.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
from google.protobuf.any_pb2 import Any as AnyMessage

from copydesk.common.messages import Endpoint, EndpointsSnapshot, EndpointState
from copydesk.eds.xds.catalogue import Catalogue
from copydesk.eds.xds.discovery_pb2 import DiscoveryRequest, DiscoveryResponse
from copydesk.eds.xds.resource import RESOURCES_FIELD, delimited
from copydesk.eds.xds.types import AGGREGATED_SERVICE, ENDPOINTS

ENVOY = "type.googleapis.com/envoy."
LISTENER = f"{ENVOY}config.listener.v3.Listener"
CLUSTER = f"{ENVOY}config.cluster.v3.Cluster"
MANAGER = f"{ENVOY}extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
ROUTER = f"{ENVOY}extensions.filters.http.router.v3.Router"

EDS_TYPE = b"\x10\x03"  # field 2, the enum's EDS
API_VERSION_3 = b"\x30\x02"  # field 6, the enum's V3

CALLS = 60
CLIENT = f"""
import collections, grpc, json
call = grpc.insecure_channel("xds:///gec-en").unary_unary("/test.Pod/Name")
print(json.dumps(collections.Counter(call(b"", timeout=20).decode() for _ in range({CALLS}))))
"""


def wrapped(type_url: str, message: bytes) -> bytes:
    return AnyMessage(type_url=type_url, value=message).SerializeToString()


def listener(name: bytes) -> bytes:
    """A listener for gRPC clients that sends everything to the cluster of the same name."""
    route = delimited(1, delimited(1, b"")) + delimited(2, delimited(1, name))
    host = delimited(1, b"all") + delimited(2, b"*") + delimited(3, route)
    router = delimited(1, b"router") + delimited(4, wrapped(ROUTER, b""))
    manager = delimited(4, delimited(1, b"routes") + delimited(2, host)) + delimited(5, router)
    return delimited(1, name) + delimited(19, delimited(1, wrapped(MANAGER, manager)))


def cluster(name: bytes) -> bytes:
    """A cluster whose endpoints come over the same stream."""
    source = delimited(3, b"") + API_VERSION_3
    return delimited(1, name) + EDS_TYPE + delimited(3, delimited(1, source) + delimited(2, name))


class ControlPlane:
    """Answers each first request of a type, and keeps what the client refused."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.refusals: list[str] = []
        self.accepted: list[str] = []
        self._catalogue = catalogue

    async def serve(self, _requests: object, context: Any) -> None:
        while (data := await context.read()) is not grpc.aio.EOF:
            request = DiscoveryRequest.FromString(data)
            if request.HasField("error_detail"):
                self.refusals.append(request.error_detail.message)
            elif request.response_nonce:
                self.accepted.append(request.type_url)
            else:
                head = DiscoveryResponse(version_info="1", type_url=request.type_url, nonce="1")
                await context.write(head.SerializeToString() + self._resources(request))

    def _resources(self, request: DiscoveryRequest) -> bytes:
        if request.type_url == ENDPOINTS:
            return b"".join(item.whole for item in self._catalogue.resources(ENDPOINTS, request.resource_names))
        make = {LISTENER: listener, CLUSTER: cluster}[request.type_url]
        return b"".join(
            delimited(RESOURCES_FIELD, wrapped(request.type_url, make(name.encode())))
            for name in request.resource_names
        )


@asynccontextmanager
async def serving(service: str, handlers: dict[str, Any]) -> AsyncIterator[int]:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)


@asynccontextmanager
async def grpc_pod(name: str) -> AsyncIterator[int]:
    async def answer(_request: bytes, _context: object) -> bytes:
        return name.encode()

    async with serving("test.Pod", {"Name": grpc.unary_unary_rpc_method_handler(answer)}) as port:
        yield port


async def ask_by_xds(port: int) -> dict[str, int]:
    """Call the model's pods by its xDS name, from a process that has this bootstrap; return who answered."""
    bootstrap = {
        "xds_servers": [{"server_uri": f"127.0.0.1:{port}", "channel_creds": [{"type": "insecure"}]}],
        "node": {"id": "test"},
    }
    environ = {**os.environ, "GRPC_XDS_BOOTSTRAP_CONFIG": json.dumps(bootstrap)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CLIENT, env=environ, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(60):
        output, _ = await process.communicate()
    answers: dict[str, int] = json.loads(output)
    return answers


async def test_grpc_accepts_an_assignment_and_uses_what_is_ready_in_every_zone() -> None:
    async with (
        grpc_pod("one") as one,
        grpc_pod("two") as two,
        grpc_pod("three") as three,
        grpc_pod("four") as four,
    ):
        pods = (
            Endpoint(id="four", host="127.0.0.1", port=four, state=EndpointState.WARMING, zone="b"),
            Endpoint(id="named", host="pod.local", port=9000, state=EndpointState.READY, zone="b"),
            Endpoint(id="one", host="127.0.0.1", port=one, state=EndpointState.READY, zone="a", started_at=2.0),
            Endpoint(id="same", host="127.0.0.1", port=one, state=EndpointState.READY, zone="b", started_at=1.0),
            Endpoint(id="three", host="127.0.0.1", port=three, state=EndpointState.DRAINING, zone="c"),
            Endpoint(id="two", host="127.0.0.1", port=two, state=EndpointState.READY, zone="b", started_at=2.0),
        )
        catalogue = Catalogue(slow_start=0.0)
        catalogue.take(
            EndpointsSnapshot(model="gec-en", epoch=1, generation=1, sent_at=0.0, endpoints=pods), 0.0, 9.0
        )
        plane = ControlPlane(catalogue)
        handlers: dict[str, Any] = {
            "StreamAggregatedResources": grpc.stream_stream_rpc_method_handler(plane.serve)
        }
        async with serving(AGGREGATED_SERVICE, handlers) as port:
            answers = await ask_by_xds(port)
    assert plane.refusals == []
    assert plane.accepted == [LISTENER, CLUSTER, ENDPOINTS]
    assert answers.keys() == {"one", "two"}
    assert sum(answers.values()) == CALLS
