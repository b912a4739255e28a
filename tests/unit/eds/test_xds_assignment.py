"""From endpoints to assignments: localities, health, weights, metadata, and what has no place in one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from copydesk.common.messages import Endpoint, EndpointProtocol, EndpointsSnapshot, EndpointState
from copydesk.eds.xds import discovery_pb2 as pb
from copydesk.eds.xds.assignment import assignable, assignment, ip_address
from copydesk.eds.xds.catalogue import Catalogue
from copydesk.eds.xds.types import ENDPOINTS

READY, WARMING, DRAINING = EndpointState.READY, EndpointState.WARMING, EndpointState.DRAINING


def pod(name: str, host: str = "10.0.0.1", **fields: object) -> Endpoint:
    return Endpoint(**{"id": name, "host": host, "port": 9000, "state": READY, **fields})  # type: ignore[arg-type]


def encoded(*endpoints: Endpoint, weights: dict[str, int] | None = None) -> pb.ClusterLoadAssignment:
    known = weights or {}
    message = assignment("gec-en", endpoints, lambda endpoint: known.get(endpoint.id, 100))
    return pb.ClusterLoadAssignment.FromString(message)


def test_an_endpoint_stands_there_with_all_that_is_known_of_it() -> None:
    endpoint = pod("p", "10.0.0.9", zone="a", started_at=12.5, node="n-1", protocol=EndpointProtocol.OPENAI)
    (zone,) = encoded(endpoint, weights={"p": 30}).endpoints
    (found,) = zone.lb_endpoints
    assert (zone.locality.region, zone.locality.zone, zone.locality.sub_zone) == ("", "a", "")
    address = found.endpoint.address.socket_address
    assert (address.address, address.port_value) == ("10.0.0.9", 9000)
    assert found.health_status == pb.HEALTHY
    assert found.load_balancing_weight.value == 30
    assert dict(found.metadata.filter_metadata["envoy.lb"]) == {
        "pod": "p",
        "state": "ready",
        "protocol": "openai",
        "started_at": 12.5,
        "node": "n-1",
    }


def test_states_are_told_as_health() -> None:
    states = [pod("a", "10.0.0.1"), pod("b", "10.0.0.2", state=WARMING), pod("c", "10.0.0.3", state=DRAINING)]
    (zone,) = encoded(*states).endpoints
    assert [found.health_status for found in zone.lb_endpoints] == [pb.HEALTHY, pb.UNHEALTHY, pb.DRAINING]


def test_zones_are_localities_that_weigh_what_is_ready_in_them() -> None:
    found = encoded(
        pod("a", "10.0.0.1", zone="z-2"),
        pod("b", "10.0.0.2", zone="z-1"),
        pod("c", "10.0.0.3", zone="z-2"),
        pod("d", "10.0.0.4", zone="z-2", state=WARMING),
        weights={"c": 10},
    )
    assert found.cluster_name == "gec-en"
    shown = {
        zone.locality.zone: (len(zone.lb_endpoints), zone.load_balancing_weight.value) for zone in found.endpoints
    }
    assert shown == {"z-1": (1, 100), "z-2": (3, 110)}


def test_a_zone_without_a_ready_pod_keeps_a_weight() -> None:
    (zone,) = encoded(pod("a", state=WARMING)).endpoints
    assert zone.load_balancing_weight.value == 1


def test_a_model_without_pods_is_named_all_the_same() -> None:
    assert encoded() == pb.ClusterLoadAssignment(cluster_name="gec-en")


def test_names_zone_indices_and_nonsense_are_no_ip_addresses() -> None:
    assert [ip_address(host) for host in ("pod-1", "localhost", "fe80::1%eth0", "10.0.0", "")] == [None] * 5
    assert ip_address("10.1.2.3") == "10.1.2.3"
    assert ip_address("FD00:0:0::1") == "fd00::1"


def test_what_is_no_ip_address_is_left_out() -> None:
    good, bad = pod("a", "fd00::1"), pod("b", "pod-b.local")
    assert assignable((good, bad)) == ((good,), (bad,))


def test_of_several_at_one_address_the_one_that_can_work_or_came_last_stays() -> None:
    gone = pod("a", started_at=9.0, state=DRAINING)
    old, new = pod("b", started_at=1.0), pod("c", started_at=2.0)
    elsewhere = pod("d", port=9001)
    assert assignable((gone, old, new, elsewhere)) == ((new, elsewhere), (gone, old))


def test_two_spellings_of_an_address_are_one() -> None:
    first, second = pod("a", "fd00::1"), pod("b", "fd00:0::1")
    assert assignable((first, second)) == ((first,), (second,))


pods = st.builds(
    pod,
    st.sampled_from("abcdef"),
    st.sampled_from(("10.0.0.1", "10.0.0.2", "fd00::1", "fd00:0::1", "name")),
    port=st.integers(9000, 9002),
    state=st.sampled_from(EndpointState),
    zone=st.sampled_from(("", "x", "y")),
    started_at=st.floats(0, 10),
)


@given(st.lists(pods, max_size=12, unique_by=lambda endpoint: endpoint.id))
def test_each_endpoint_is_assigned_once_or_left_out_and_no_address_stands_twice(found: list[Endpoint]) -> None:
    listing = tuple(sorted(found, key=lambda endpoint: endpoint.id))
    kept, left_out = assignable(listing)
    assert sorted((*kept, *left_out), key=lambda endpoint: endpoint.id) == list(listing)
    message = encoded(*kept)
    addresses = [
        (item.endpoint.address.socket_address.address, item.endpoint.address.socket_address.port_value)
        for zone in message.endpoints
        for item in zone.lb_endpoints
    ]
    assert len(addresses) == len(set(addresses)) == len(kept)
    assert len({zone.locality.zone for zone in message.endpoints}) == len(message.endpoints)
    every = {(ip_address(endpoint.host), endpoint.port) for endpoint in listing if ip_address(endpoint.host)}
    assert set(addresses) == every


def snapshot(*endpoints: Endpoint, model: str = "m") -> EndpointsSnapshot:
    return EndpointsSnapshot(model=model, epoch=1, generation=1, sent_at=0.0, endpoints=endpoints)


def warming(catalogue: Catalogue) -> bool:
    return catalogue.warming


def weights(catalogue: Catalogue, model: str = "m") -> dict[str, int]:
    (resource,) = catalogue.resources(ENDPOINTS, [model])
    response = pb.DiscoveryResponse.FromString(resource.whole)
    message = pb.ClusterLoadAssignment.FromString(response.resources[0].value)
    return {
        str(item.metadata.filter_metadata["envoy.lb"]["pod"]): item.load_balancing_weight.value
        for zone in message.endpoints
        for item in zone.lb_endpoints
    }


def test_both_kinds_of_bytes_carry_the_same_message() -> None:
    catalogue = Catalogue(slow_start=0.0)
    catalogue.take(snapshot(pod("a")), now=0.0, wall=0.0)
    (resource,) = catalogue.resources(ENDPOINTS, ["m"])
    whole = pb.DiscoveryResponse.FromString(resource.whole).resources[0]
    named = pb.DeltaDiscoveryResponse.FromString(resource.named).resources[0]
    assert named.resource == whole
    assert (named.name, named.version) == ("m", catalogue.versions(ENDPOINTS)["m"])
    assert whole.type_url == ENDPOINTS


def test_a_snapshot_that_says_the_same_makes_no_new_version() -> None:
    catalogue = Catalogue(slow_start=0.0)
    assert catalogue.take(snapshot(pod("a")), now=0.0, wall=0.0).changed
    version = catalogue.versions(ENDPOINTS)["m"]
    assert not catalogue.take(snapshot(pod("a")), now=9.0, wall=9.0).changed
    assert catalogue.versions(ENDPOINTS)["m"] == version
    assert catalogue.take(snapshot(pod("a"), pod("b", "10.0.0.2")), now=9.0, wall=9.0).changed
    assert catalogue.take(snapshot(pod("a")), now=9.0, wall=9.0).changed
    assert catalogue.versions(ENDPOINTS)["m"] == version, "the same content has the same name"


def test_who_is_left_out_is_told_once() -> None:
    catalogue = Catalogue(slow_start=0.0)
    bad = pod("bad", "name")
    update = catalogue.take(snapshot(bad), now=0.0, wall=0.0)
    assert (update.left_out, update.newly_left_out) == (1, (bad,))
    update = catalogue.take(snapshot(bad, pod("good")), now=0.0, wall=0.0)
    assert (update.changed, update.left_out, update.newly_left_out) == (True, 1, ())


def test_a_new_pod_warms_up_step_by_step_and_then_no_more_is_to_be_done() -> None:
    catalogue = Catalogue(slow_start=10.0)
    catalogue.take(snapshot(pod("old")), now=100.0, wall=1000.0)
    assert weights(catalogue) == {"old": 100}
    assert not warming(catalogue)
    catalogue.take(snapshot(pod("new", "10.0.0.2"), pod("old")), now=200.0, wall=1100.0)
    assert warming(catalogue)
    seen = [weights(catalogue)["new"]]
    changed = []
    for second in range(1, 13):
        changed.append(catalogue.warm_up(200.0 + second))
        seen.append(weights(catalogue)["new"])
    assert seen == [10, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 100, 100]
    assert changed == [[], *([["m"]] * 9), [], []]
    assert not warming(catalogue)
    assert weights(catalogue)["old"] == 100


def test_pods_that_were_there_first_are_as_old_as_they_say() -> None:
    catalogue = Catalogue(slow_start=10.0)
    found = (pod("a", "10.0.0.1", started_at=999.0), pod("b", "10.0.0.2", started_at=1.0), pod("c", "10.0.0.3"))
    catalogue.take(snapshot(*found, pod("d", "10.0.0.4", started_at=2000.0)), now=5.0, wall=1005.0)
    assert weights(catalogue) == {"a": 60, "b": 100, "c": 100, "d": 10}


def test_a_pod_is_new_from_when_it_is_ready_and_when_it_has_begun_again() -> None:
    catalogue = Catalogue(slow_start=10.0)
    catalogue.take(snapshot(), now=0.0, wall=0.0)
    catalogue.take(snapshot(pod("a", state=WARMING, started_at=1.0)), now=10.0, wall=10.0)
    catalogue.take(snapshot(pod("a", started_at=1.0)), now=50.0, wall=50.0)
    assert weights(catalogue) == {"a": 10}
    catalogue.warm_up(60.0)
    assert weights(catalogue) == {"a": 100}
    catalogue.take(snapshot(pod("a", started_at=1.0, state=DRAINING)), now=70.0, wall=70.0)
    catalogue.take(snapshot(pod("a", started_at=1.0)), now=71.0, wall=71.0)
    assert weights(catalogue) == {"a": 100}, "it was warm, and is"
    catalogue.take(snapshot(pod("a", started_at=72.0)), now=72.0, wall=72.0)
    assert weights(catalogue) == {"a": 10}


def test_a_wall_clock_that_is_set_changes_no_weight() -> None:
    catalogue = Catalogue(slow_start=10.0)
    catalogue.take(snapshot(pod("a", started_at=1000.0)), now=0.0, wall=1001.0)
    catalogue.take(snapshot(pod("a", started_at=1000.0), pod("b", "10.0.0.2")), now=20.0, wall=721.0)
    assert weights(catalogue)["a"] == 100
