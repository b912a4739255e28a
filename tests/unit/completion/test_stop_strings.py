from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.inference.completion.stop_strings import StopStrings

letters = st.text("ab", max_size=40)
stop_lists = st.lists(st.text("ab", min_size=1, max_size=5), max_size=4)


def first_stop(text: str, stops: list[str]) -> str | None:
    """The stop string that is complete first, by looking at every beginning of the text."""
    for end in range(len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            return max(complete, key=len)
    return None


def cut(text: str, stops: list[str]) -> str:
    for end in range(len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            return text[: end - max(map(len, complete))]
    return text


def pieces_of(data: st.DataObject, text: str) -> list[str]:
    borders = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=10)))
    return [text[a:b] for a, b in zip([0, *borders], [*borders, len(text)], strict=True)]


@given(text=letters, stops=stop_lists, data=st.data())
def test_in_any_pieces_the_text_is_cut_at_its_first_stop(text: str, stops: list[str], data: st.DataObject) -> None:
    strings = StopStrings(stops)
    given_out = "".join(strings.push(piece) for piece in pieces_of(data, text)) + strings.finish()
    assert given_out == cut(text, stops)
    assert strings.found == first_stop(text, stops)


@given(text=letters, stops=stop_lists, more=letters, data=st.data())
def test_nothing_is_given_out_that_more_text_could_take_back(
    text: str, stops: list[str], more: str, data: st.DataObject
) -> None:
    strings = StopStrings(stops)
    given_out = "".join(map(strings.push, pieces_of(data, text)))
    assert cut(text + more, stops).startswith(given_out)


@given(text=letters, stops=stop_lists)
def test_no_more_is_held_back_than_could_begin_a_stop(text: str, stops: list[str]) -> None:
    strings = StopStrings(stops)
    given_out = "".join(map(strings.push, text))
    if strings.found is None:
        held = text[len(given_out) :]
        assert held == "" or any(stop.startswith(held) for stop in stops)


def test_without_stops_all_text_passes_at_once() -> None:
    strings = StopStrings([])
    assert strings.push("anything") == "anything"
    assert strings.finish() == ""


def test_text_after_a_stop_is_dropped() -> None:
    strings = StopStrings(["\n\n"])
    assert strings.push("one\n") == "one"
    assert strings.push("\ntwo") == ""
    assert strings.push("three") == ""
    assert (strings.finish(), strings.found) == ("", "\n\n")


@pytest.mark.parametrize(
    ("stops", "found", "left"), [(["bc", "abcd"], "bc", "a"), (["c", "abc"], "abc", ""), (["d", "cd"], "cd", "ab")]
)
def test_the_first_to_be_complete_wins_and_then_the_longest(stops: list[str], found: str, left: str) -> None:
    strings = StopStrings(stops)
    assert strings.push("abcd") == left
    assert strings.found == found


def test_text_beyond_ascii_is_cut_by_characters() -> None:
    strings = StopStrings(["🙂!"])
    assert strings.push("sí 🙂") == "sí "
    assert strings.push("?") == "🙂?"
    assert strings.push("🙂!") == ""
    assert strings.found == "🙂!"
