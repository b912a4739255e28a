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


def unready(*names: str) -> tuple[Endpoint, ...]:
    return pods(*names, state=EndpointState.WARMING)


def states(guard: Guard) -> str:
    """The ids, the ready ones in capitals."""
    return "".join(e.id.upper() if e.state is EndpointState.READY else e.id for e in guard.released)


def test_some_unready_pods_show_at_once_and_most_of_them_are_held_as_they_were() -> None:
    few = rule(guarded(*"abcd"), pods(*"abc") + unready("d"), 1.0, LIMITS)
    assert states(few) == "ABCd"
    most = rule(guarded(*"abcd"), pods("a") + unready(*"bcd"), 1.0, LIMITS)
    assert states(most) == "ABCD"
    assert {endpoint.id for endpoint in most.suspects} == set("bcd")


def test_that_the_last_ready_pods_are_called_unready_is_held_although_many_were_not_ready_before() -> None:
    before = rule(Guard(), pods("a") + unready(*"bcdefg"), 0.0, LIMITS)
    assert states(rule(before, unready(*"abcdefg"), 1.0, LIMITS)) == "Abcdefg"


def test_what_a_pod_says_of_itself_is_believed() -> None:
    assert states(rule(guarded(*"ab"), unready(*"ab"), 1.0, LIMITS, frozenset("ab"))) == "ab"


def test_a_pod_that_has_started_anew_is_not_ready_and_nobody_doubts_it() -> None:
    again = tuple(
        Endpoint(id="a", host="h", port=port, state=EndpointState.WARMING, started_at=at)
        for port, at in [(1000 + ord("a"), 5.0)]
    )
    assert states(rule(guarded("a"), again, 1.0, LIMITS)) == "a"


def test_unready_pods_that_a_probe_found_unready_are_shown_so() -> None:
    guard = rule(guarded(*"ab"), unready(*"ab"), 1.0, LIMITS)
    guard = confirm_gone(guard, pods("a")[0])
    guard = rule(guard, unready(*"ab"), 2.0, LIMITS)
    assert states(guard) == "aB"
    assert states(rule(guard, unready(*"ab"), 61.0, LIMITS)) == "ab"


def test_unready_pods_that_are_let_go_one_after_the_other_count_together() -> None:
    guard = guarded(*"abcd")
    for at, left in enumerate(["ABCd", "ABcd", "Abcd", "abcd"]):
        desired = tuple(sorted(pods(*filter(str.isupper, left)) + unready(*filter(str.islower, left)), key=id_of))
        desired = tuple(Endpoint(id=e.id.lower(), host=e.host, port=address(e.id), state=e.state) for e in desired)
        guard = rule(guard, desired, 1.0 + at * 0.1, LIMITS)
    assert states(guard) == "ABcd"


def id_of(endpoint: Endpoint) -> str:
    return endpoint.id.lower()


def address(name: str) -> int:
    return 1000 + ord(name.lower()[0])


LISTINGS = st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from(list(EndpointState))).map(
    lambda found: tuple(pods(name, state=found[name])[0] for name in sorted(found))
)
STEPS = st.lists(st.tuples(LISTINGS, st.floats(0.0, 3.0)), max_size=25)


@given(STEPS, st.sets(st.sampled_from("abcdefgh")))
def test_unproven_no_more_than_half_of_the_pods_that_serve_are_lost_within_the_window(
    steps: list[tuple[tuple[Endpoint, ...], float]], own_word: set[str]
) -> None:
    guard, now, lost = Guard(), 0.0, dict[str, float]()
    for desired, pause in steps:
        now += pause
        before, guard = guard, rule(guard, desired, now, Limits(5.0, 1e9), own_word)
        serving = {e.id for e in guard.released if e.state is EndpointState.READY}
        silent = own_word | {e.id for e in guard.released if e.state is EndpointState.DRAINING}
        lost = {pod: at for pod, at in lost.items() if now - at < 5.0 and pod not in serving | silent}
        served = {e.id for e in before.released if e.state is EndpointState.READY}
        fresh = served - serving - silent - {e.id for e in before.released if e.state is EndpointState.DRAINING}
        fresh -= own_word
        assert not fresh or 2 * len(fresh | lost.keys()) <= len(served | lost.keys()), (before, guard)
        lost |= dict.fromkeys(fresh, now)


@given(STEPS, LISTINGS)
def test_what_is_desired_prevails_once_all_suspects_are_proven_or_the_limit_is_over(
    steps: list[tuple[tuple[Endpoint, ...], float]], last: tuple[Endpoint, ...]
) -> None:
    guard, now = Guard(), 0.0
    for desired, pause in [*steps, (last, 0.0)]:
        now += pause
        guard = rule(guard, desired, now, LIMITS)
    assert rule(guard, last, now + LIMITS.hold + 0.001, LIMITS).released == last
    for suspect in guard.suspects:
        guard = confirm_gone(guard, suspect)
    guard = rule(guard, last, now, LIMITS)
    assert (guard.released, guard.held) == (last, {})


@given(STEPS)
def test_a_decision_that_is_asked_for_again_is_the_same(
    steps: list[tuple[tuple[Endpoint, ...], float]],
) -> None:
    guard, now = Guard(), 0.0
    for desired, pause in steps:
        now += pause
        guard = rule(guard, desired, now, LIMITS)
        again = rule(guard, desired, now, LIMITS)
        assert (again.released, again.held) == (guard.released, guard.held)
