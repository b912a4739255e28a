"""Which pods a gateway uses: enough, evenly spread over the gateways, near ones first, and tomorrow the same."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.routing import Member, aperture, resize
from copydesk.routing.aperture import OWN_ZONE_SHARE, place, shares

names = st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1, max_size=8)
zones = st.sampled_from(["", "a", "b", "c"])
memberships = st.dictionaries(names, zones, max_size=60).map(
    lambda pods: [Member(name, zone) for name, zone in pods.items()]
)


def fleet(count: int, zones: str = "") -> list[Member]:
    return [Member(f"pod-{i}", zones[i % len(zones)] if zones else "") for i in range(count)]


@given(names, zones, memberships, st.integers(1, 70))
def test_it_has_the_size_asked_for_or_all_pods_and_none_twice(
    identity: str, zone: str, members: list[Member], size: int
) -> None:
    chosen = aperture(identity, zone, members, size)
    assert len(chosen) == len(set(chosen)) == min(size, len(members))
    assert set(chosen) <= {member.id for member in members}


@given(names, zones, memberships, st.integers(1, 60), st.integers(0, 60))
def test_a_larger_one_contains_the_smaller(
    identity: str, zone: str, members: list[Member], size: int, more: int
) -> None:
    assert set(aperture(identity, zone, members, size)) <= set(aperture(identity, zone, members, size + more))


@given(names, memberships, st.randoms(use_true_random=False))
def test_the_order_in_which_pods_are_listed_is_nothing_to_it(identity: str, members: list[Member], rng) -> None:  # type: ignore[no-untyped-def]
    shuffled = list(members)
    rng.shuffle(shuffled)
    assert set(aperture(identity, "a", members, 16)) == set(aperture(identity, "a", shuffled, 16))


@pytest.mark.parametrize("gateways", [5, 21, 32, 100])
def test_numbered_gateways_cover_the_fleet_evenly_however_many_they_are(gateways: int) -> None:
    used: Counter[str] = Counter({member.id: 0 for member in fleet(167)})
    for number in range(gateways):
        used.update(aperture(f"gateway-{number}", "", fleet(167), 32))
    fair = gateways * 32 / 167
    assert fair - 3 <= min(used.values())
    assert max(used.values()) <= fair + 3


def test_gateways_with_other_names_leave_no_pod_out() -> None:
    used: Counter[str] = Counter()
    for number in range(64):
        used.update(aperture(f"host-{number * 7919:x}-x", "", fleet(167), 32))
    assert len(used) == 167
    assert max(used.values()) <= 3 * 64 * 32 / 167


@pytest.mark.parametrize("number", range(20))
def test_a_pod_that_goes_changes_two_places_at_most(number: int) -> None:
    members = fleet(167)
    before = set(aperture(f"gateway-{number}", "", members, 32))
    for gone in members:
        after = set(aperture(f"gateway-{number}", "", [one for one in members if one != gone], 32))
        assert len(before - {gone.id} - after) <= 1
        assert len(after - before) <= 2


def test_most_pods_are_of_the_own_zone_and_the_others_are_there_to_spill_to() -> None:
    members = fleet(150, "abc")
    by_id = {member.id: member.zone for member in members}
    for number in range(10):
        found = Counter(by_id[one] for one in aperture(f"gateway-{number}", "b", members, 32))
        assert found == {"b": round(32 * OWN_ZONE_SHARE), "a": 4, "c": 4}


def test_what_a_small_zone_lacks_the_others_give() -> None:
    assert shares("a", {"a": 2, "b": 50, "c": 50}, 32) == {"a": 2, "b": 15, "c": 15}
    assert shares("a", {"a": 50, "b": 2}, 32) == {"a": 30, "b": 2}
    assert shares("", {"a": 10, "b": 30}, 8) == {"a": 2, "b": 6}
    assert shares("nowhere", {"a": 10, "b": 30}, 8) == {"a": 2, "b": 6}


@given(names)
def test_a_place_is_on_the_ring(identity: str) -> None:
    assert 0.0 <= place(identity) < 1.0


@pytest.mark.parametrize(
    ("size", "usable", "usable_in_base", "total", "wanted"),
    [
        pytest.param(32, 32, 32, 167, 32, id="all is well"),
        pytest.param(32, 16, 16, 167, 32, id="half is enough"),
        pytest.param(32, 15, 15, 167, 64, id="less than half widens it"),
        pytest.param(128, 10, 2, 167, 167, id="up to the whole fleet"),
        pytest.param(64, 40, 20, 167, 64, id="it stays wide until the first pods are well again"),
        pytest.param(64, 60, 24, 167, 32, id="and then returns"),
        pytest.param(32, 1, 1, 20, 32, id="a fleet that is used as a whole cannot be used more"),
    ],
)
def test_it_widens_when_its_pods_fail(
    size: int, usable: int, usable_in_base: int, total: int, wanted: int
) -> None:
    assert resize(size, 32, usable=usable, usable_in_base=usable_in_base, total=total) == wanted
