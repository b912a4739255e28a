"""Mass losses are held back until they are proven."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from copydesk.common.messages import Endpoint, EndpointState
from copydesk.eds.guard import Guard, Limits, confirm_gone, rule

LIMITS = Limits(window=5.0, hold=60.0)


def pods(*names: str, state: EndpointState = EndpointState.READY) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(id=n, host="h", port=1000 + ord(n[0]), state=state) for n in names)


def ids(guard: Guard) -> str:
    return "".join(endpoint.id for endpoint in guard.released)


def guarded(*names: str) -> Guard:
    return rule(Guard(), pods(*names), 0.0, LIMITS)


def test_growth_and_small_losses_pass_at_once() -> None:
    guard = rule(guarded(*"abcd"), pods(*"abce"), 1.0, LIMITS)
    assert ids(guard) == "abce"
    assert guard.held == {}


def test_half_passes_and_more_than_half_is_held() -> None:
    assert ids(rule(guarded(*"abcd"), pods(*"ab"), 1.0, LIMITS)) == "ab"
    guard = rule(guarded(*"abcd"), pods("a"), 1.0, LIMITS)
    assert ids(guard) == "abcd"
    assert set(guard.held) == set("bcd")


def test_an_empty_list_is_held_even_if_it_had_one_endpoint() -> None:
    assert ids(rule(guarded("a"), (), 1.0, LIMITS)) == "a"


def test_suspects_that_a_probe_did_not_find_are_let_go_one_by_one() -> None:
    guard = rule(guarded(*"abcd"), (), 1.0, LIMITS)
    for gone in pods("b", "d"):
        guard = confirm_gone(guard, gone)
    guard = rule(guard, (), 1.5, LIMITS)
    assert ids(guard) == "ac"
    assert set(guard.held) == set("ac")


def test_the_rest_of_a_held_loss_does_not_slip_out_when_it_has_become_a_minority() -> None:
    guard = rule(guarded(*"abcd"), pods("a"), 1.0, LIMITS)
    guard = rule(guard, pods(*"aefgh"), 30.0, LIMITS)
    assert ids(guard) == "abcdefgh"


def test_what_returns_is_no_suspect_any_more_and_an_old_verdict_has_no_effect() -> None:
    guard = rule(guarded("a"), (), 1.0, LIMITS)
    guard = rule(guard, pods("a"), 2.0, LIMITS)
    assert guard.held == {}
    assert confirm_gone(guard, pods("a")[0]) == guard


def test_the_limit_lets_a_loss_pass_unproven() -> None:
    guard = rule(guarded(*"ab"), (), 1.0, LIMITS)
    assert ids(rule(guard, (), 60.9, LIMITS)) == "ab"
    assert ids(rule(guard, (), 61.0, LIMITS)) == ""


def test_drained_pods_go_without_being_held() -> None:
    guard = rule(guarded(*"ab"), pods(*"ab", state=EndpointState.DRAINING), 1.0, LIMITS)
    assert ids(rule(guard, (), 2.0, LIMITS)) == ""


def test_drained_pods_do_not_make_the_loss_of_the_serving_ones_look_small() -> None:
    mixed = pods(*"ab") + pods(*"cdef", state=EndpointState.DRAINING)
    guard = rule(rule(Guard(), mixed, 0.0, LIMITS), mixed[2:], 1.0, LIMITS)
    assert set(guard.held) == set("ab")


def test_losses_in_small_slices_count_together_within_the_window() -> None:
    guard = guarded(*"abcdefghij")
    for at, left in enumerate(["cdefghij", "efghij", "ghij", "ij", ""]):
        guard = rule(guard, pods(*left), 1.0 + at * 0.1, LIMITS)
    assert len(guard.released) >= 5


def test_losses_far_apart_do_not_count_together() -> None:
    guard = guarded(*"abcdef")
    for at, left in enumerate(["abcde", "abcd", "abc", "ab"]):
        guard = rule(guard, pods(*left), at * 10.0, LIMITS)
    assert ids(guard) == "ab"


def test_an_endpoint_whose_address_has_a_new_tenant_is_replaced_not_lost() -> None:
    new = (Endpoint(id="z", host="h", port=1000 + ord("a"), state=EndpointState.WARMING),)
    assert ids(rule(guarded("a"), new, 1.0, LIMITS)) == "z"


NAMES = st.sets(st.sampled_from("abcdefgh"))


@given(st.lists(st.tuples(NAMES, st.floats(0.0, 3.0)), max_size=30))
def test_what_is_released_has_all_that_is_desired_in_order_and_is_never_emptied_unproven(
    steps: list[tuple[set[str], float]],
) -> None:
    guard, now = Guard(), 0.0
    limits = Limits(window=5.0, hold=1e9)
    for names, pause in steps:
        now += pause
        before = guard
        guard = rule(guard, pods(*sorted(names)), now, limits)
        assert names <= {endpoint.id for endpoint in guard.released}
        assert list(guard.released) == sorted(guard.released, key=lambda endpoint: endpoint.id)
        assert guard.released or not before.released
        assert set(guard.held) == {endpoint.id for endpoint in guard.released} - names
