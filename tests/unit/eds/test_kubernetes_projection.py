"""From Services and EndpointSlices to the endpoints of each model."""

from __future__ import annotations

from typing import Any

import pytest

from copydesk.common.messages import Endpoint, EndpointProtocol, EndpointState
from copydesk.eds.kubernetes.cluster import Cluster, Listed, OfServices, OfSlices, reduce
from copydesk.eds.kubernetes.objects import EndpointSlice, Service
from copydesk.eds.kubernetes.projection import Projection, project
from tests.fixtures.kube_objects import endpoint_slice, pod_json, service

READY, WARMING, DRAINING = EndpointState.READY, EndpointState.WARMING, EndpointState.DRAINING


def projection(services: list[Service], slices: list[EndpointSlice]) -> Projection:
    cluster = reduce(Cluster(), OfServices(Listed((1, 1), tuple(services))))
    return project(reduce(cluster, OfSlices(Listed((1, 1), tuple(slices)))), "rpc")


def listed(*slices: EndpointSlice, **changes: Any) -> dict[str, EndpointState]:
    """The pods of one Service `gec` with these slices, and their states."""
    models = projection([service(**changes)], list(slices)).models
    return {endpoint.id: endpoint.state for endpoint in models["gec"]}


def only(*slices: EndpointSlice, **changes: Any) -> Endpoint:
    (endpoint,) = projection([service(**changes)], list(slices)).models["gec"]
    return endpoint


def test_a_pod_is_listed_by_its_name_with_address_zone_and_node() -> None:
    found = only(endpoint_slice("s", pod_json("p1", "10.0.0.7", ready=True, zone="z1", node="n1")))
    assert found == Endpoint(id="p1", host="10.0.0.7", port=9000, state=READY, zone="z1", node="n1")


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        ({}, READY),
        ({"ready": True, "serving": True, "terminating": False}, READY),
        ({"ready": None, "serving": None, "terminating": None}, READY),
        ({"ready": False}, WARMING),
        ({"ready": False, "serving": True, "terminating": True}, DRAINING),
        ({"ready": False, "serving": False, "terminating": True}, DRAINING),
        # a Service with publishNotReadyAddresses
        ({"ready": True, "serving": True, "terminating": True}, DRAINING),
    ],
)
def test_conditions_become_a_state(conditions: dict[str, Any], state: EndpointState) -> None:
    assert only(endpoint_slice("s", pod_json("p1", **conditions))).state is state


def test_several_slices_make_one_service() -> None:
    slices = [endpoint_slice(f"s{n}", pod_json(f"p{n}", f"10.0.0.{n}")) for n in range(3)]
    assert listed(*slices) == {"p0": READY, "p1": READY, "p2": READY}


def test_a_pod_in_two_slices_is_listed_once_in_the_state_of_more_caution() -> None:
    ready, unready = pod_json("p1", ready=True), pod_json("p1", ready=False)
    ending = pod_json("p1", ready=False, terminating=True)
    assert listed(endpoint_slice("s1", ready), endpoint_slice("s2", unready)) == {"p1": WARMING}
    assert listed(endpoint_slice("s1", unready), endpoint_slice("s2", ready)) == {"p1": WARMING}
    assert listed(endpoint_slice("s1", ending), endpoint_slice("s2", ready)) == {"p1": DRAINING}


def test_a_pod_that_replaces_one_of_its_name_is_listed_in_its_place() -> None:
    old = pod_json("web-0", "10.0.0.1", uid="u1", ready=False, terminating=True)
    new = pod_json("web-0", "10.0.0.2", uid="u2", ready=False)
    found = only(endpoint_slice("s1", old, new))
    assert (found.host, found.state) == ("10.0.0.2", WARMING)


def test_an_address_given_out_again_belongs_to_the_pod_that_stays() -> None:
    old = pod_json("a-old", "10.0.0.1", terminating=True)
    new = pod_json("b-new", "10.0.0.1", ready=True)
    assert listed(endpoint_slice("s1", old), endpoint_slice("s2", new)) == {"b-new": READY}


def test_an_address_named_with_and_without_a_pod_is_listed_under_the_pod() -> None:
    assert listed(endpoint_slice("s1", pod_json(None)), endpoint_slice("s2", pod_json("p1"))) == {"p1": READY}


def test_an_endpoint_without_a_pod_is_named_by_its_address() -> None:
    assert only(endpoint_slice("s1", pod_json(None))).id == "10.0.0.1-9000"


@pytest.mark.parametrize(
    ("families", "host"),
    [(["IPv4", "IPv6"], "10.0.0.1"), (["IPv6", "IPv4"], "fd00::1"), (["IPv6"], "fd00::1"), (None, "10.0.0.1")],
)
def test_of_two_families_the_one_that_the_service_prefers_is_used(families: list[str] | None, host: str) -> None:
    four = endpoint_slice("s4", pod_json("p1", "10.0.0.1"))
    six = endpoint_slice("s6", pod_json("p1", "fd00::1"), family="IPv6")
    assert only(four, six, families=families).host == host


def test_one_ipv6_address_in_two_spellings_is_one() -> None:
    slices = [
        endpoint_slice("s1", pod_json(None, "FD00:0:0::1"), family="IPv6"),
        endpoint_slice("s2", pod_json(None, "fd00::1"), family="IPv6"),
    ]
    assert listed(*slices) == {"fd00::1-9000": READY}


def test_the_named_port_is_used_and_a_lone_port_needs_no_name() -> None:
    two = [{"name": "metrics", "port": 9100}, {"name": "rpc", "port": 9001, "protocol": "TCP"}]
    assert only(endpoint_slice("s", pod_json(), ports=two)).port == 9001
    assert only(endpoint_slice("s", pod_json(), ports=[{"name": "", "port": 9002}])).port == 9002
    http = {"copydesk/model": "gec", "copydesk/port": "metrics"}
    assert only(endpoint_slice("s", pod_json(), ports=two), labels=http).port == 9100


@pytest.mark.parametrize(
    "ports",
    [[], None, [{"name": "http", "port": 80}], [{"name": "rpc", "port": 9, "protocol": "UDP"}], [{"name": "rpc"}]],
)
def test_a_slice_without_the_port_is_left_out_and_said_to_be(ports: list[dict[str, Any]] | None) -> None:
    found = projection([service()], [endpoint_slice("s", pod_json(), ports=ports)])
    assert found.models == {"gec": ()}
    assert [(p.resource, p.name, p.text) for p in found.problems] == [
        ("endpointslices", "prod/s", "has no TCP port named 'rpc'")
    ]


def test_an_empty_slice_without_ports_is_no_problem() -> None:
    assert projection([service()], [endpoint_slice("s", ports=[])]) == Projection({"gec": ()}, frozenset())


def test_slices_follow_the_label_that_names_their_service() -> None:
    services = [service("gec"), service("chat")]
    before = projection(services, [endpoint_slice("s", pod_json("p1"), owner="gec")]).models
    after = projection(services, [endpoint_slice("s", pod_json("p1"), owner="chat")]).models
    orphan = projection(services, [endpoint_slice("s", pod_json("p1"), owner=None)]).models
    assert [len(before["gec"]), len(before["chat"])] == [1, 0]
    assert [len(after["gec"]), len(after["chat"])] == [0, 1]
    assert orphan == {"gec": (), "chat": ()}


def test_slices_of_another_namespace_are_another_services() -> None:
    assert projection([service()], [endpoint_slice("s", pod_json(), namespace="test")]).models == {"gec": ()}


def test_several_services_of_one_model_are_one_list() -> None:
    blue = service("blue", labels={"copydesk/model": "gec"})
    green = service("green", labels={"copydesk/model": "gec"})
    slices = [
        endpoint_slice("b", pod_json("p1"), owner="blue"),
        endpoint_slice("g", pod_json("p2", "10.0.0.2"), pod_json("p1"), owner="green"),
    ]
    assert [pod.id for pod in projection([blue, green], slices).models["gec"]] == ["p1", "p2"]


def test_two_pods_of_one_name_in_two_namespaces_are_one_and_said_to_be() -> None:
    services = [service(namespace="a"), service(namespace="b")]
    slices = [
        endpoint_slice("s", pod_json("p-0", "10.0.0.1", uid="1"), namespace="a"),
        endpoint_slice("s", pod_json("p-0", "10.0.0.2", uid="2"), namespace="b"),
    ]
    found = projection(services, slices)
    assert [pod.host for pod in found.models["gec"]] == ["10.0.0.1"]
    assert [problem.name for problem in found.problems] == ["p-0"]


def test_annotations_say_what_labels_cannot_and_win() -> None:
    declared = service(
        labels={"app": "x", "copydesk/model": "gec", "copydesk/protocol": "rpc"},
        annotations={"copydesk/model": "chat", "copydesk/protocol": "openai", "copydesk/capacity": "128"},
    )
    (found,) = projection([declared], [endpoint_slice("s", pod_json())]).models["chat"]
    assert (found.protocol, found.capacity) == (EndpointProtocol.OPENAI, 128)


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        ({}, "names no model"),
        ({"copydesk/model": "v1.2"}, "'v1.2' is no valid name"),
        ({"copydesk/model": "gec", "copydesk/protocol": "grpc"}, "'grpc' is not a valid EndpointProtocol"),
        ({"copydesk/model": "gec", "copydesk/capacity": "-1"}, "'-1' is no number of requests"),
    ],
)
def test_a_service_that_declares_nonsense_is_left_out_and_said_to_be(labels: dict[str, str], text: str) -> None:
    found = projection([service(labels=labels)], [endpoint_slice("s", pod_json())])
    assert found.models == {}
    (problem,) = found.problems
    assert problem.name == "prod/gec"
    assert text in problem.text


@pytest.mark.parametrize("addresses", [None, [], [""], ["10.0.0.1"], ["fe80::1%eth0"]])
def test_an_endpoint_without_a_usable_address_is_left_out_and_said_to_be(addresses: list[str] | None) -> None:
    pod = {**pod_json("p1"), "addresses": addresses}
    found = projection([service()], [endpoint_slice("s", pod, pod_json("p2", "fd00::2"), family="IPv6")])
    assert [each.id for each in found.models["gec"]] == ["p2"]
    assert [problem.name for problem in found.problems] == ["prod/s"]


@pytest.mark.parametrize(
    ("family", "address"),
    [
        ("IPv4", "fd00::1"),
        ("IPv4", "pod.example"),
        ("IPv4", "10.0.0.1\n"),
        ("IPv4", "10.0.0"),
        ("FQDN", "a" * 64),
        ("FQDN", ".".join(["a" * 50] * 6)),
        ("FQDN", "two words"),
        ("FQDN", "a..b"),
    ],
)
def test_what_is_no_address_of_its_family_is_left_out_and_said_briefly(family: str, address: str) -> None:
    good = "pod.example." if family == "FQDN" else "10.0.0.2"
    found = projection(
        [service()], [endpoint_slice("s", pod_json("p1", address), pod_json("p2", good), family=family)]
    )
    assert [(each.id, each.host) for each in found.models["gec"]] == [("p2", good)]
    (problem,) = found.problems
    assert len(problem.text) < 300


@pytest.mark.parametrize("port", [0, -1, 65536, 70000, 10**30])
def test_a_number_that_is_no_port_counts_as_none(port: int) -> None:
    ports = [{"name": "rpc", "port": port, "protocol": "TCP"}]
    found = projection([service()], [endpoint_slice("s", pod_json(), ports=ports)])
    assert found.models == {"gec": ()}
    (problem,) = found.problems
    assert "has no TCP port named 'rpc'" in problem.text


@pytest.mark.parametrize("capacity", ["1000001", "9" * 30, "9" * 250_000])
def test_more_requests_than_a_machine_can_run_are_refused_and_said_briefly(capacity: str) -> None:
    found = projection([service(annotations={"copydesk/capacity": capacity})], [])
    assert found.models == {}
    (problem,) = found.problems
    assert "is more requests than the 1000000" in problem.text
    assert len(problem.text) < 300


@pytest.mark.parametrize("name", ["model", "protocol", "port"])
def test_what_is_wrong_with_a_huge_annotation_is_said_briefly(name: str) -> None:
    item = service(annotations={f"copydesk/{name}": "x" * 250_000})
    found = projection([item], [endpoint_slice("s", pod_json())])
    (problem,) = found.problems
    assert 20 < len(problem.text) < 300


def test_labels_and_annotations_that_nobody_reads_are_not_kept() -> None:
    item = service(labels={"copydesk/model": "gec", "app": "x"}, annotations={"note": "x" * 250_000})
    assert item.metadata.labels == {"copydesk/model": "gec"}
    assert item.metadata.annotations == {}
    assert endpoint_slice("s").metadata.labels == {"kubernetes.io/service-name": "gec"}
