"""The fleet as data for people and programs."""

from __future__ import annotations

import asyncio
from collections import Counter

from copydesk.common.messages import EndpointState
from copydesk.common.rpc import TcpAddress
from copydesk.gateway.dispatch import Dispatcher
from copydesk.gateway.fleet import Fleet
from copydesk.gateway.pod import Pod
from copydesk.gateway.schemas import FleetBody, FleetTotals, PodBody

EJECTED = "ejected"
UNUSED = "unused"
DISCONNECTED = "disconnected"

STATES = (*(state.value for state in EndpointState), EJECTED, DISCONNECTED, UNUSED)


def fleet_body(dispatcher: Dispatcher, *, discovery_connected: bool) -> FleetBody:
    """Return every pod and the sums over them."""
    fleet = dispatcher.fleet
    now = asyncio.get_running_loop().time()
    pods = [_pod_body(fleet, pod, now) for pod in sorted(fleet.pods.values(), key=lambda pod: pod.id)]
    return FleetBody(
        model=fleet.model,
        model_digest=fleet.digest,
        discovery_connected=discovery_connected,
        pods=pods,
        totals=_totals(dispatcher, pods),
    )


def pod_states(fleet: Fleet) -> Counter[str]:
    """Count the pods by state, those of which there are none too."""
    states = Counter(dict.fromkeys(STATES, 0))
    states.update(pod_state(fleet, pod) for pod in fleet.pods.values())
    return states


def pod_state(fleet: Fleet, pod: Pod) -> str:
    """Name the state of a pod: discovery's word, unless the connection, or what it has done, says otherwise."""
    if not pod.engaged:
        return UNUSED
    if not pod.connected:
        return DISCONNECTED
    if pod.channel is not None and pod.channel.draining:
        return EndpointState.DRAINING.value
    if not pod.eligible:
        return _hindrance(pod)
    return EJECTED if fleet.health.ejected(pod.id) else EndpointState.READY.value


def _hindrance(pod: Pod) -> str:
    if pod.endpoint.state is not EndpointState.READY:
        return pod.endpoint.state.value
    return pod.reported.value


def _totals(dispatcher: Dispatcher, pods: list[PodBody]) -> FleetTotals:
    fleet, gate = dispatcher.fleet, dispatcher.gate
    return FleetTotals(
        pods=len(pods),
        eligible=sum(pod.eligible for pod in pods),
        in_flight=sum(pod.in_flight for pod in pods),
        capacity=sum(pod.capacity for pod in pods if pod.eligible),
        requests=sum(pod.requests for pod in pods),
        errors=sum(pod.errors for pod in pods),
        retries=dispatcher.metrics.retries,
        hedges=dispatcher.routing.hedges,
        shed=dispatcher.routing.refused,
        ejected=len(fleet.health.outliers.ejected),
        ejections=fleet.health.ejections.total(),
        panic=fleet.panic,
        aperture=fleet.aperture_size,
        allowance=fleet.allowance,
        underway=gate.underway,
        queued=len(gate.queue),
    )


def _pod_body(fleet: Fleet, pod: Pod, now: float) -> PodBody:
    ledger, load = pod.ledger, pod.ledger.load
    latency = ledger.latency_ms(now)
    ejection = fleet.health.outliers.ejected.get(pod.id)
    return PodBody(
        id=pod.id,
        address=str(TcpAddress(pod.endpoint.host, pod.endpoint.port)),
        zone=pod.endpoint.zone,
        state=pod_state(fleet, pod),
        connected=pod.connected,
        eligible=pod.eligible,
        in_flight=ledger.in_flight,
        running=None if load is None else load.running,
        queued=None if load is None else load.queued,
        capacity=ledger.capacity,
        ewma_ms=None if latency is None else round(latency, 3),
        mean_ms=round(ledger.mean_ms, 3) if ledger.samples else None,
        weight=round(ledger.weight, 3),
        ejected=None if ejection is None else ejection.reason.value,
        ejected_ms=0 if ejection is None else max(0, round(1000 * (ejection.until - now))),
        requests=ledger.requests,
        errors=ledger.errors,
        digest=pod.digest,
    )
