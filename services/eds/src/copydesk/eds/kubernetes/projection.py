"""From the state of the cluster to the endpoints of each model: a pure function, and a memory that spares work.

A model's pods are those in the EndpointSlices of all Services that declare it. The same pod may stand in several
slices at once: while Kubernetes moves endpoints between slices (their consumers are told to expect that), under
IPv4 and IPv6, or behind two Services. It is listed once:

- terminating in any of them, it is draining: that is never taken back. Else unready in any, it is unready: sending
  work too early costs more than sending it late.
- under the address family that its Service prefers, and of several addresses the smallest.
- of two pods of one name (a StatefulSet replaces one), the one that is not terminating.
- of two names at one address (an address is given out again), likewise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address

from msgspec.structs import replace

from copydesk.common.messages import Endpoint, EndpointState
from copydesk.eds.kubernetes.cluster import Cluster, Key
from copydesk.eds.kubernetes.declaration import Declaration, Problem, declaration
from copydesk.eds.kubernetes.objects import (
    Conditions,
    EndpointSlice,
    ObjectReference,
    Service,
    SliceEndpoint,
    SlicePort,
)
from copydesk.eds.roster import MAX_PODS, Listing
from copydesk.kube.objects import SERVICE_NAME

Group = tuple[Service, tuple[EndpointSlice, ...]]
"""A Service and its slices, by name."""

# The most cautious of several statements about one pod is believed; of several pods of one name the least so.
_CAUTION = {EndpointState.DRAINING: 0, EndpointState.WARMING: 1, EndpointState.READY: 2}

# A domain name, by RFC 1123: what is none makes programs stumble that look it up.
LONGEST_NAME = 253
_DOMAIN = re.compile(
    r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)*\.?"
)

# How much of what an object says ends in our log.
LONGEST_QUOTE = 200

_UNCONDITIONAL = Conditions()
_NO_POD = ObjectReference()


@dataclass(frozen=True, slots=True)
class Projection:
    """The endpoints of each model that a Service declares, and what could not be used."""

    models: Mapping[str, Listing] = field(default_factory=dict)
    problems: frozenset[Problem] = frozenset()


@dataclass(frozen=True, slots=True)
class _Mention:
    """One slice's word about one pod; `uid` is empty where nothing but an address is known."""

    uid: str
    family: int
    endpoint: Endpoint


@dataclass(frozen=True, slots=True)
class _Part:
    """The projection of one model; `groups` is what it was made from."""

    groups: tuple[Group, ...]
    listing: Listing
    problems: frozenset[Problem]


class Projector:
    """Projects one state after the other, and makes anew only the models of which something changed.

    A model of which nothing changed keeps the very same listing. `port` is the name of the port where a Service
    declares none.
    """

    def __init__(self, port: str) -> None:
        self._port = port
        self._parts: dict[str, _Part] = {}

    def __call__(self, cluster: Cluster) -> Projection:
        """Return the endpoints of each model in `cluster`."""
        grouped, problems = _by_model(cluster, self._port)
        self._parts = {model: self._part(model, groups) for model, groups in grouped.items()}
        for part in self._parts.values():
            problems |= part.problems
        return Projection({model: part.listing for model, part in self._parts.items()}, frozenset(problems))

    def _part(self, model: str, groups: tuple[Group, ...]) -> _Part:
        known = self._parts.get(model)
        if known is not None and known.groups == groups:
            return known
        listing, problems = _list(groups, self._port)
        if known is not None and known.listing == listing:
            listing = known.listing
        return _Part(groups, listing, problems)


def project(cluster: Cluster, port: str) -> Projection:
    """Return the endpoints of each model in `cluster`, from nothing."""
    return Projector(port)(cluster)


def _by_model(cluster: Cluster, port: str) -> tuple[dict[str, tuple[Group, ...]], set[Problem]]:
    slices: dict[Key, list[EndpointSlice]] = {}
    for item in cluster.slices.objects():
        owner = (item.metadata.labels or {}).get(SERVICE_NAME)
        if owner is not None:
            slices.setdefault((item.metadata.namespace, owner), []).append(item)
    models: dict[str, tuple[Group, ...]] = {}
    problems: set[Problem] = set()
    for service in cluster.services.objects():
        declared = declaration(service, port)
        if isinstance(declared, Problem):
            problems.add(declared)
            continue
        key = (service.metadata.namespace, service.metadata.name)
        models[declared.model] = (*models.get(declared.model, ()), (service, tuple(slices.get(key, ()))))
    return models, problems


def _list(groups: Iterable[Group], port: str) -> tuple[Listing, frozenset[Problem]]:
    mentions: dict[str, list[_Mention]] = {}
    problems: set[Problem] = set()
    for service, slices in groups:
        declared = declaration(service, port)
        assert isinstance(declared, Declaration)
        for item in slices:
            for found in _read(item, declared):
                if isinstance(found, Problem):
                    problems.add(found)
                else:
                    mentions.setdefault(found.endpoint.id, []).append(found)
    pods = []
    for pod, words in mentions.items():
        namesakes = _merge(words)
        pods.append(namesakes[0])
        if len([one for one in namesakes if one.state is not EndpointState.DRAINING]) > 1:
            problems.add(Problem("pods", pod, "is the name of several pods of one model: one of them is listed"))
    return _one_an_address(pods), frozenset(problems)


def _read(item: EndpointSlice, declared: Declaration) -> Iterator[_Mention | Problem]:
    if not item.endpoints:
        return
    name = f"{item.metadata.namespace}/{item.metadata.name}"
    port = _port(item.ports or (), declared.port)
    if port is None:
        yield Problem("endpointslices", name, f"has no TCP port named {declared.port[:LONGEST_QUOTE]!r}")
        return
    family = _family(item.address_type, declared.families)
    for one in item.endpoints:
        host = _host(one.addresses[0] if one.addresses else "", item.address_type)
        if host is None:
            shown = str(list(one.addresses or ()))[:LONGEST_QUOTE]
            yield Problem("endpointslices", name, f"has an endpoint without an address: {shown}")
        else:
            yield _mention(one, host, port, family, declared)


def _port(ports: Iterable[SlicePort], wanted: str) -> int | None:
    usable = [port for port in ports if 0 < (port.port or 0) < 65536 and (port.protocol or "TCP") == "TCP"]
    for port in usable:
        if port.name == wanted:
            return port.port
    # The one port of a Service needs no name.
    return usable[0].port if len(usable) == 1 and not usable[0].name else None


def _family(address_type: str, families: tuple[str, ...]) -> int:
    return families.index(address_type) if address_type in families else len(families)


@lru_cache(maxsize=2 * MAX_PODS)
def _host(host: str, address_type: str) -> str | None:
    try:
        match address_type:
            case "IPv4":
                return str(IPv4Address(host))
            case "IPv6":  # slices written by hand may spell one address in several ways
                address = IPv6Address(host)
                # A zone is the name of a network card of somebody else's machine.
                return None if address.scope_id else str(address)
    except AddressValueError:
        return None
    return host if len(host) <= LONGEST_NAME and _DOMAIN.fullmatch(host) else None


def _mention(one: SliceEndpoint, host: str, port: int, family: int, declared: Declaration) -> _Mention:
    pod = one.target_ref if one.target_ref is not None and one.target_ref.kind == "Pod" else _NO_POD
    endpoint = Endpoint(
        id=pod.name or f"{host}-{port}",
        host=host,
        port=port,
        state=state_of(one.conditions or _UNCONDITIONAL),
        zone=one.zone or "",
        protocol=declared.protocol,
        capacity=declared.capacity,
        node=one.node_name or "",
    )
    return _Mention(pod.uid or "", family, endpoint)


def state_of(conditions: Conditions) -> EndpointState:
    """Return what a pod under these conditions can do.

    Terminating comes first: a Service with `publishNotReadyAddresses` calls even such pods ready. One that has
    stopped serving may still be answering what it accepted, so it is draining until its slice drops it.
    """
    if conditions.terminating:
        return EndpointState.DRAINING
    return EndpointState.WARMING if conditions.ready is False else EndpointState.READY


def _merge(words: Iterable[_Mention]) -> list[Endpoint]:
    """Make one endpoint of what is said of each pod of one name; return them with the one to be listed first."""
    by_pod: dict[str, list[_Mention]] = {}
    for word in words:
        by_pod.setdefault(word.uid, []).append(word)
    pods = []
    for uid, of_pod in by_pod.items():
        chosen = min(of_pod, key=_preference)
        state = min((word.endpoint.state for word in of_pod), key=_CAUTION.__getitem__)
        pods.append((-_CAUTION[state], _preference(chosen), uid, state, chosen.endpoint))
    pods.sort(key=lambda pod: pod[:3])
    return [replace(endpoint, state=state) for *_, state, endpoint in pods]


def _preference(word: _Mention) -> tuple[object, ...]:
    one = word.endpoint
    return (word.family, one.host, one.port, one.zone, one.node, one.protocol, one.capacity)


def _one_an_address(pods: Iterable[Endpoint]) -> Listing:
    by_address: dict[tuple[str, int], Endpoint] = {}
    for pod in sorted(pods, key=_claim):
        by_address.setdefault((pod.host, pod.port), pod)
    return tuple(sorted(by_address.values(), key=lambda pod: pod.id))


def _claim(pod: Endpoint) -> tuple[bool, bool, str]:
    is_nameless = pod.id == f"{pod.host}-{pod.port}"
    return (pod.state is EndpointState.DRAINING, is_nameless, pod.id)
