import random

from hypothesis import given
from hypothesis import strategies as st

from copydesk.inference.engine.native.draft import (
    Course,
    agreement,
    from_history,
    from_source,
    outset,
    proceed,
    usable,
)
from tests.unit.engine.reference import imperfect

A, B, C, D, E, F, G, H, NEW = range(1, 10)
SOURCE = [A, B, C, D, E, F, G, H]
tokens = st.lists(st.integers(0, 5), max_size=30)


def after(answer: list[int], *, accepted: int, position: int = 0, drafted: int = 8) -> int:
    """Where the source goes on, after a pass from `position` that ended with the last token of `answer`."""
    course = Course(position, window=8)
    return proceed(course, SOURCE, answer, drafted=drafted, accepted=accepted).position


def test_drafts_begin_with_all_of_the_source_or_short_without_one() -> None:
    assert from_source(SOURCE, outset(SOURCE).position, outset(SOURCE).window) == SOURCE
    assert 0 < outset([]).window < 8


def test_the_source_goes_on_behind_what_was_accepted() -> None:
    assert after([A, B, C, D], accepted=3, drafted=3) == 4


def test_a_new_token_counts_as_a_substitution() -> None:
    assert after([A, B, NEW], accepted=2) == 3


def test_a_deleted_token_is_passed_over() -> None:
    assert after([A, B, D], accepted=2) == 4


def test_deletions_over_some_distance_are_seen_once_two_tokens_agree() -> None:
    assert after([A, H], accepted=1) == 2
    assert after([A, G, H], accepted=0, position=2) == 8


def test_after_an_insertion_the_source_is_taken_up_again() -> None:
    position = after([A, B, NEW], accepted=2)
    assert after([A, B, NEW, C], accepted=0, position=position) == 3


def test_the_nearest_place_is_the_one_that_is_taken() -> None:
    source = [A, B, A, B, A, B, C]
    course = proceed(Course(2, 4), source, [A, B, NEW, A, B], drafted=4, accepted=1)
    assert course.position == 4


def test_an_answer_longer_than_its_source_leaves_nothing_to_draft() -> None:
    position = after([*SOURCE, NEW], accepted=8)
    assert from_source(SOURCE, position, 4) == []
    assert after([*SOURCE, NEW, NEW], accepted=0, position=position) == len(SOURCE)


def window(before: int, *, drafted: int, accepted: int) -> int:
    return proceed(Course(0, before), SOURCE, [A], drafted=drafted, accepted=accepted).window


def test_a_window_doubles_with_what_was_accepted_and_starts_short_after_an_edit() -> None:
    assert window(4, drafted=4, accepted=4) == 8
    assert window(40, drafted=3, accepted=3) == 40
    assert window(40, drafted=40, accepted=39) == 4
    assert window(4, drafted=4, accepted=1) == 2
    assert window(2, drafted=2, accepted=0) == 1
    assert window(1, drafted=1, accepted=0) == 1
    assert window(4, drafted=0, accepted=0) == 4


def test_history_repeats_what_followed_the_same_tokens() -> None:
    assert from_history([A, B, C, D, NEW, A, B], 2) == [C, D]
    assert from_history([A, B, C, D, NEW, A, B], 9) == [C, D, NEW, A, B]
    assert from_history([A, NEW, B, NEW], 4) == []
    assert from_history([A], 4) == []


def test_a_longer_repetition_is_better_than_a_later_one_and_a_later_one_than_an_earlier() -> None:
    assert from_history([A, B, C, D, NEW, B, C, E, NEW, A, B, C], 1) == [D]
    assert from_history([B, C, D, NEW, B, C, E, NEW, B, C], 1) == [E]


def test_one_token_alone_is_no_repetition() -> None:
    assert from_history([A, B, NEW, A], 4) == []


def test_old_history_is_forgotten() -> None:
    assert from_history([A, B, C, *[NEW] * 600, A, B], 1) == []


@given(tokens.filter(bool), st.integers(0, 9))
def test_what_is_drafted_from_history_stands_in_it_behind_the_same_two_tokens(
    history: list[int], count: int
) -> None:
    draft = from_history(history, count)
    assert len(draft) <= count
    if draft:
        wanted = [*history[-2:], *draft]
        assert any(history[i : i + len(wanted)] == wanted for i in range(len(history)))


def test_a_draft_is_usable_up_to_a_stop_token_or_what_is_no_token() -> None:
    assert usable([A, B, C], [B, NEW], vocabulary=50) == [A]
    assert usable([A, 49, 50, B], [], vocabulary=50) == [A, 49]
    assert usable([A, -1, B], [], vocabulary=50) == [A]
    assert usable([2**70], [], vocabulary=50) == []


def test_tokens_agree_up_to_the_first_difference() -> None:
    assert agreement([A, B, C], [A, B, C, D]) == 3
    assert agreement([A, B, C], [A, NEW, C, D]) == 1
    assert agreement([], [A]) == agreement([], []) == 0


@given(seed=st.integers(0, 2**32))
def test_an_answer_comes_out_whole_in_fewer_passes_the_more_of_it_is_in_the_source(seed: int) -> None:
    rng = random.Random(seed)
    answer = [rng.randrange(30) for _ in range(rng.randint(1, 40))]
    source = imperfect(rng, answer, 30)
    course, made, passes = outset(source), list[int](), 0
    while len(made) < len(answer):
        rest = answer[len(made) :]
        draft = from_source(source, course.position, min(course.window, len(rest) - 1))
        accepted = agreement(draft, rest)
        made += rest[: accepted + 1]
        passes += 1
        course = proceed(course, source, made, drafted=len(draft), accepted=accepted)
        assert 0 <= course.position <= len(source)
        assert course.window >= 1
    assert made == answer
    assert passes <= len(answer)
    assert passes == 1 or source[: len(answer)] != answer
