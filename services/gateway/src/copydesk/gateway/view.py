"""The fleet as data for people and programs."""

from __future__ import annotations

import asyncio

from copydesk.common.messages import EndpointState
from copydesk.common.rpc import TcpAddress
from copydesk.gateway.fleet import Fleet
from copydesk.gateway.pod import Pod
from copydesk.gateway.schemas import FleetBody, FleetTotals, PodBody


def fleet_body(fleet: Fleet, *, discovery_connected: bool, retries: int) -> FleetBody:
    """Return every pod and the sums over them."""
    now = asyncio.get_running_loop().time()
    pods = [_pod_body(pod, now) for pod in sorted(fleet.pods.values(), key=lambda pod: pod.id)]
    totals = FleetTotals(
        pods=len(pods),
        eligible=sum(pod.eligible for pod in pods),
        in_flight=sum(pod.in_flight for pod in pods),
        capacity=sum(pod.capacity for pod in pods if pod.eligible),
        requests=sum(pod.requests for pod in pods),
        errors=sum(pod.errors for pod in pods),
        retries=retries,
    )
    return FleetBody(
        model=fleet.model,
        model_digest=fleet.digest,
        discovery_connected=discovery_connected,
        pods=pods,
        totals=totals,
    )


def pod_state(pod: Pod) -> str:
    """Name the state of a pod: discovery's word, unless the connection knows better."""
    if not pod.connected:
        return "disconnected"
    if pod.channel is not None and pod.channel.draining:
        return EndpointState.DRAINING.value
    return pod.endpoint.state.value if pod.eligible else _hindrance(pod)


def _hindrance(pod: Pod) -> str:
    if pod.endpoint.state is not EndpointState.READY:
        return pod.endpoint.state.value
    return pod.reported.value


def _pod_body(pod: Pod, now: float) -> PodBody:
    ledger = pod.ledger
    latency = ledger.latency_ms(now)
    return PodBody(
        id=pod.id,
        address=str(TcpAddress(pod.endpoint.host, pod.endpoint.port)),
        zone=pod.endpoint.zone,
        state=pod_state(pod),
        connected=pod.connected,
        eligible=pod.eligible,
        in_flight=ledger.in_flight,
        running=None if ledger.load is None else ledger.load.running,
        queued=None if ledger.load is None else ledger.load.queued,
        capacity=ledger.capacity,
        ewma_ms=None if latency is None else round(latency, 3),
        requests=ledger.requests,
        errors=ledger.errors,
    )
