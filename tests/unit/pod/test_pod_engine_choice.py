from hypothesis import given
from hypothesis import strategies as st

from copydesk.common.rpc import Load
from copydesk.inference.pod.engine_choice import Standing, choose_engine, total_load

loads = st.builds(Load, st.integers(0, 99), st.integers(0, 99), st.integers(1, 64), st.floats(0, 100))


def standing(running: int, queued: int = 0, capacity: int = 8, *, room: bool = True) -> Standing:
    return Standing(Load(running, queued, capacity), room)


def test_the_engine_with_the_least_to_do_is_chosen() -> None:
    assert choose_engine([standing(3), standing(2), standing(2, 1)]) == 1


def test_what_an_engine_has_to_do_is_measured_by_its_capacity() -> None:
    assert choose_engine([standing(3, capacity=4), standing(5, capacity=8)]) == 1


def test_one_that_is_down_or_full_is_passed_over() -> None:
    assert choose_engine([None, standing(0, room=False), standing(9)]) == 2
    assert choose_engine([None, standing(0, room=False)]) is None
    assert choose_engine([]) is None


def test_the_load_of_several_is_their_sum_at_their_mean_pace() -> None:
    several = [Load(3, 1, 8, 10.0), Load(2, 0, 4, 20.0), Load(0, 0, 8, 0.0)]
    assert total_load(several) == Load(running=5, queued=1, capacity=20, step_ms=15.0)


def test_no_engine_has_no_capacity() -> None:
    assert total_load([]) == Load(0, 0, 0, 0.0)


@given(st.lists(st.none() | st.builds(Standing, loads, st.booleans()), max_size=8))
def test_whoever_is_chosen_has_room_and_nobody_with_room_has_less_to_do(
    standings: list[Standing | None],
) -> None:
    def burden(each: Standing) -> float:
        return (each.load.running + each.load.queued) / each.load.capacity

    chosen = choose_engine(standings)
    possible = [each for each in standings if each is not None and each.room]
    assert (chosen is None) == (not possible)
    if chosen is not None:
        winner = standings[chosen]
        assert winner in possible
        assert winner is not None
        assert burden(winner) == min(map(burden, possible))
