from hypothesis import given
from hypothesis import strategies as st

from copydesk.inference.pod.shares import Share, choose_worker, plan_returns

shares = st.lists(st.builds(Share, st.integers(0, 200), st.booleans()), max_size=12)


def dealt(counts: list[int], connections: int) -> list[int]:
    """Deal that many connections out to workers who hold `counts`."""
    for _ in range(connections):
        chosen = choose_worker([Share(count) for count in counts])
        assert chosen is not None
        counts[chosen] += 1
    return counts


def test_sixty_four_connections_over_four_workers_are_sixteen_each() -> None:
    assert dealt([0, 0, 0, 0], 64) == [16, 16, 16, 16]


def test_those_of_a_dead_worker_go_to_the_others_in_equal_parts() -> None:
    assert dealt([16, 16, 16], 16) == [22, 21, 21]


def test_a_worker_that_takes_nothing_gets_nothing() -> None:
    assert choose_worker([Share(0, takes=False), Share(9), Share(8)]) == 2
    assert choose_worker([Share(0, takes=False)]) is None
    assert choose_worker([]) is None


def test_nobody_gives_back_while_shares_differ_by_one() -> None:
    assert plan_returns([Share(3), Share(2), Share(3)]) == [0, 0, 0]


def test_those_who_have_too_many_give_to_one_that_came_back_with_none() -> None:
    assert plan_returns([Share(22), Share(0), Share(21), Share(21)]) == [6, 0, 5, 5]


def test_those_who_take_nothing_are_left_out_of_the_account() -> None:
    assert plan_returns([Share(9, takes=False), Share(4), Share(0)]) == [0, 2, 0]
    assert plan_returns([Share(9), Share(0, takes=False)]) == [0, 0]


@given(shares)
def test_what_is_given_back_and_dealt_out_again_makes_all_even(before: list[Share]) -> None:
    returns = plan_returns(before)
    after = [share.connections - gone for share, gone in zip(before, returns, strict=True)]
    assert all(count >= 0 for count in after)
    takers = [index for index, share in enumerate(before) if share.takes]
    assert all(returns[index] == 0 for index in range(len(before)) if index not in takers)
    if takers:
        counts = dealt([after[index] for index in takers], sum(returns))
        assert max(counts) - min(counts) <= 1


@given(shares)
def test_no_connection_moves_in_vain(before: list[Share]) -> None:
    """The fewest that can move: what exceeds an even share, counted against the best case for each worker."""
    takers = [share.connections for share in before if share.takes]
    if not takers:
        return
    fair, left_over = divmod(sum(takers), len(takers))
    most_first = sorted(takers, reverse=True)
    needed = sum(max(0, count - fair - (place < left_over)) for place, count in enumerate(most_first))
    assert sum(plan_returns(before)) in {0, needed}
