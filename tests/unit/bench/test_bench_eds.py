"""The cluster that discovery is measured with is what Kubernetes would show, and figures are what they say."""

from __future__ import annotations

import json

import msgspec

from bench.eds.cluster import MARK, PORT, Cluster
from bench.eds.figures import Case, Spread, Workload, document, table
from copydesk.common.messages import EndpointState
from copydesk.eds.kubernetes.cluster import Cluster as Known
from copydesk.eds.kubernetes.cluster import Listed, OfServices, OfSlices, Written, reduce
from copydesk.eds.kubernetes.follower import Page
from copydesk.eds.kubernetes.objects import EndpointSlice, Service
from copydesk.eds.kubernetes.projection import project


def listed(cluster: Cluster) -> Known:
    services = msgspec.json.decode(cluster.services(), type=Page[Service])
    slices = msgspec.json.decode(cluster.slices(), type=Page[EndpointSlice])
    known = reduce(Known(), OfServices(Listed((1, 1), services.items or ())))
    return reduce(known, OfSlices(Listed((1, 1), slices.items or ())))


def test_discovery_finds_every_pod_of_every_model_in_it() -> None:
    found = project(listed(Cluster(services=4, endpoints=40)), "rpc")
    assert not found.problems
    assert {model: len(pods) for model, pods in found.models.items()} == {f"model-0{n}": 10 for n in range(4)}
    addresses = {(pod.host, pod.port) for pods in found.models.values() for pod in pods}
    assert len(addresses) == 40
    assert {port for _, port in addresses} == {PORT}


def test_a_change_replaces_a_pod_or_flips_its_readiness_and_grows_the_revision() -> None:
    cluster = Cluster(services=2, endpoints=20)
    known = listed(cluster)
    for number in range(200):
        before = project(known, "rpc").models
        model = cluster.change(now_us=1_000 + number)
        item = msgspec.json.decode(cluster.slice_of(model), type=EndpointSlice)
        known = reduce(known, OfSlices(Written((1, cluster.revision), item)))
        after = project(known, "rpc").models
        now, then = set(after[model.name]), set(before[model.name])
        (one,), (other,) = now - then, then - now
        if one.id == other.id:
            assert one.state is not other.state
        else:
            assert one.id.endswith(f"{MARK}{1_000 + number}")
    assert cluster.revision == 201
    states = {pod.state for pods in after.values() for pod in pods}
    assert states == {EndpointState.READY, EndpointState.WARMING}
    assert 0 < cluster.replaced < 200


def test_figures_are_of_the_order_statistics_and_stand_beside_the_bars() -> None:
    spread = Spread.of([float(n) for n in range(100, -1, -1)])
    assert (spread.p50, spread.p99, spread.most) == (50.0, 99.0, 100.0)
    workload = Workload(services=50, endpoints=5_000, rate=100, seconds=20, warm_up=3)
    case = Case("NATS", 0.25, 160.0, spread, spread, 99.0, 2_000, 1, 3.0, 0)
    found = json.loads(json.dumps(document(workload, [case], {})))
    assert found["cases"][0]["holds"] == {"cpu": True, "memory": False, "publish_p99": True}
    assert found["bars"] == {"cpu_cores": 0.5, "memory_mb": 150.0, "publish_p99_ms": 100.0}
    lines = table(workload, [case])
    assert lines[0].startswith("5,000 endpoints of 50 models, 100 changes a second")
    assert "| NATS | 0.25 | 160 | 99 | 50.0 / 99.0 | 50 / 99 |" in lines
