"""Requests to the xDS server as an enemy would write them. That none is too long is gRPC's to see to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from copydesk.common.messages import Endpoint, EndpointsSnapshot, EndpointState
from copydesk.eds.xds.catalogue import Catalogue
from copydesk.eds.xds.discovery_pb2 import DeltaDiscoveryRequest, DiscoveryRequest
from copydesk.eds.xds.metrics import XdsMetrics
from copydesk.eds.xds.stream import MAX_NAMES, MAX_QUOTED, Stream, SubscriptionError
from copydesk.eds.xds.types import ENDPOINTS
from copydesk.eds.xds.variant import Incremental, StateOfWorld
from tests.fuzz.corpus import cases, effort
from tests.fuzz.hostile_bytes import damaged

VARIANTS: list[Any] = [StateOfWorld(), Incremental()]
POD = Endpoint(id="p1", host="10.0.0.1", port=9000, state=EndpointState.READY)

names = st.lists(st.sampled_from(["gec-en", "*", "", "nobody"]) | st.text(max_size=5), max_size=4)
types = st.sampled_from([ENDPOINTS, "", "type.googleapis.com/envoy.config.cluster.v3.Cluster"]) | st.text(
    max_size=5
)
nonces = st.sampled_from(["", "1", "2", "3"])
whole = st.builds(
    lambda wanted, type_url, nonce: DiscoveryRequest(
        resource_names=wanted, type_url=type_url, response_nonce=nonce
    ).SerializeToString(),
    names,
    types,
    nonces,
)
delta = st.builds(
    lambda wanted, unwanted, kept, type_url, nonce: DeltaDiscoveryRequest(
        resource_names_subscribe=wanted,
        resource_names_unsubscribe=unwanted,
        initial_resource_versions=dict.fromkeys(kept, "1"),
        type_url=type_url,
        response_nonce=nonce,
    ).SerializeToString(),
    names,
    names,
    names,
    types,
    nonces,
)
refusal = DiscoveryRequest(type_url=ENDPOINTS, response_nonce="1")
refusal.error_detail.message = "no"
requests = st.lists(whole | delta | st.just(refusal.SerializeToString()) | st.binary(max_size=30), max_size=6)


def catalogue() -> Catalogue:
    found = Catalogue(0.0)
    found.take(
        EndpointsSnapshot(model="gec-en", epoch=1, generation=1, sent_at=0.0, endpoints=(POD,)), now=0.0, wall=0.0
    )
    return found


async def check_stream(variant: Any, sent: Sequence[bytes]) -> None:
    stream: Stream[Any] = Stream(variant, catalogue(), XdsMetrics(CollectorRegistry()), default_type=ENDPOINTS)
    waiting, written = list(sent), []

    async def read() -> bytes | None:
        await asyncio.sleep(0)
        return waiting.pop(0) if waiting else None

    async def write(data: bytes) -> None:
        written.append(data)

    reason = ""
    try:
        async with asyncio.timeout(60):
            await stream.run(read, write)
    except SubscriptionError as error:
        reason = error.reason
    assert reason in ("", "malformed", "too_many_names")
    assert len(written) <= len(sent)
    assert len(stream._foreign) <= MAX_QUOTED
    assert all(len(one.names) <= MAX_NAMES for one in stream._subscriptions.values())


@effort(60)
@given(
    variant=st.sampled_from(VARIANTS),
    sent=requests.flatmap(lambda all_: st.tuples(*(damaged(st.just(one), 2) for one in all_))),
)
async def test_a_stream_is_served_or_ended_with_a_typed_error(variant: Any, sent: Sequence[bytes]) -> None:
    await check_stream(variant, sent)


@pytest.mark.parametrize("data", [pytest.param(data, id=name) for name, data in cases("xds_requests")])
@pytest.mark.parametrize("variant", VARIANTS, ids=["sotw", "delta"])
async def test_a_kept_request_is_no_trouble(variant: Any, data: bytes) -> None:
    await check_stream(variant, [data, data])
