"""Cutting text into sentences."""

from __future__ import annotations

import itertools

import pytest
import regex
import sentencex
from hypothesis import given
from hypothesis import strategies as st

from copydesk.text import Segment, segment, sentences
from copydesk.text.whitespace import normalise
from tests.unit.text.hard_texts import any_text


def texts(text: str, **settings: int) -> list[str]:
    return [found.text for found in segment(text, **settings)]


@given(any_text, st.integers(1, 40))
def test_every_character_but_white_space_is_in_exactly_one_segment(text: str, limit: int) -> None:
    covered = [i for found in segment(text, max_characters=limit) for i in range(found.start, found.end)]
    assert covered == sorted(set(covered))
    assert not [i for i in set(range(len(text))) - set(covered) if not text[i].isspace()]


@given(any_text, st.integers(1, 40))
def test_a_segment_is_its_stretch_of_the_text_on_one_line(text: str, limit: int) -> None:
    for found in segment(text, max_characters=limit):
        assert found.text
        assert found.text == normalise(text[found.start : found.end])
        assert text[found.start : found.end] == text[found.start : found.end].strip()


@given(any_text, st.integers(1, 40))
def test_a_correctable_segment_fits_the_limit_and_has_a_letter(text: str, limit: int) -> None:
    for found in segment(text, max_characters=limit):
        if found.correctable:
            assert len(found.text) <= limit
            assert any(map(str.isalpha, found.text))
        elif len(found.text) > limit:
            assert regex.fullmatch(r"\X", found.text)


@given(any_text, st.integers(1, 40))
def test_no_cut_tears_a_grapheme_cluster(text: str, limit: int) -> None:
    boundaries = {0} | {cluster.end() for cluster in regex.finditer(r"\X", text)}
    for before, after in itertools.pairwise(segment(text, max_characters=limit)):
        if before.end == after.start:
            assert before.end in boundaries


@given(
    st.lists(st.sampled_from(["He go home.", "Is it?", "Yes!"]), max_size=6),
    st.sampled_from([" ", "  ", "\n", "\n\n"]),
)
def test_plain_sentences_come_one_by_one(sentences: list[str], gap: str) -> None:
    assert texts(gap.join(sentences)) == sentences


def test_offsets_count_code_points() -> None:
    assert segment(" 😀 ok.\u00a0 She\tgo. ") == [Segment(1, 6, "😀 ok."), Segment(8, 15, "She go.")]


def test_abbreviations_and_numbers_end_no_sentence() -> None:
    text = "Dr. Smith paid 3.50 for it, e.g. in the U.S. last year. He left."
    assert texts(text) == ["Dr. Smith paid 3.50 for it, e.g. in the U.S. last year.", "He left."]


def test_a_blank_line_always_ends_a_sentence() -> None:
    assert texts("this goes\n\non here") == ["this goes", "on here"]
    assert texts("this goes\n \t \non here") == ["this goes", "on here"]


def test_a_soft_wrap_joins_lines_to_one_sentence() -> None:
    text = "She go to\r\n   school every day. He\nstay."
    assert segment(text) == [Segment(0, 31, "She go to school every day."), Segment(32, 40, "He stay.")]


def test_the_mark_of_a_list_item_stands_apart_from_its_sentence() -> None:
    assert segment("- he go\n1. she go\n# Title") == [
        Segment(0, 1, "-", correctable=False),
        Segment(2, 7, "he go"),
        Segment(8, 10, "1.", correctable=False),
        Segment(11, 17, "she go"),
        Segment(18, 19, "#", correctable=False),
        Segment(20, 25, "Title"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "---",
        "12:30",
        "😀",
        "...",
        "\u200b",
        "\u00b9",
        "https://example.org/a?b=c",
        "<http://x.org>.",
        "www.example.org",
        "me@example.org",
    ],
)
def test_what_no_model_can_correct_is_marked(text: str) -> None:
    assert [found.correctable for found in segment(text)] == [False]


@pytest.mark.parametrize(
    "text", ["See https://example.org", "Mail me@example.org today.", "a", "é", "漢", "@home I am"]
)
def test_an_address_inside_a_sentence_leaves_it_correctable(text: str) -> None:
    assert [found.correctable for found in segment(text)] == [True]


@pytest.mark.parametrize("text", ["", " ", "\n\n", "\u00a0\u2003\t"])
def test_a_text_of_white_space_has_no_segments(text: str) -> None:
    assert segment(text) == []


def test_a_long_sentence_is_cut_after_clause_punctuation() -> None:
    assert texts("one two three, four five six seven", max_characters=20) == [
        "one two three,",
        "four five six seven",
    ]


def test_an_early_comma_leaves_no_stub() -> None:
    assert texts("Oh, one two three four five", max_characters=20) == ["Oh, one two three", "four five"]


def test_without_clauses_a_long_sentence_is_cut_at_white_space() -> None:
    assert texts("one two three four five", max_characters=9) == ["one two", "three", "four five"]


def test_a_long_word_is_cut_between_clusters() -> None:
    assert texts("e\u0301" * 5, max_characters=5) == ["e\u0301" * 2, "e\u0301" * 2, "e\u0301"]


def test_a_cluster_beyond_the_limit_stays_whole() -> None:
    cluster = "a" + "\u0301" * 9
    assert segment(cluster + "b", max_characters=4) == [
        Segment(0, 10, cluster, correctable=False),
        Segment(10, 11, "b"),
    ]


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        segment("a", max_characters=0)


@pytest.mark.parametrize(
    "unit",
    [
        *(".", "\n", "a", "Dr. ", '"', "(", "He go. ", ", ", "> ", "- a\n", "a b\n", "a@"),
        *("\u0301", " \u0301", "\U0001f1e6", "😀\u200d", "\ud800"),
    ],
)
def test_adversarial_input_of_20_000_characters_is_covered(unit: str) -> None:
    text = (unit * 20_000)[:20_000]
    found = "".join(text[part.start : part.end] for part in segment(text))
    assert "".join(found.split()) == "".join(text.split())


@pytest.mark.parametrize("unit", ['\u00bb\u3002A"\u2026 ', "\u6f22\u3002", "``a. ", "\u201c", "a" * 700 + ". "])
def test_the_sentence_library_sees_a_bounded_stretch_at_once(monkeypatch: pytest.MonkeyPatch, unit: str) -> None:
    shown: list[int] = []
    original = sentencex.segment

    def recorded(language: str, text: str) -> list[str]:
        shown.append(len(text))
        return list(original(language, text))

    monkeypatch.setattr(sentencex, "segment", recorded)
    length = 20_000
    segment((unit * length)[:length])
    assert max(shown) <= sentences.WINDOW_CHARACTERS
    assert sum(shown) <= 2 * length + sentences.WINDOW_CHARACTERS


@given(
    st.lists(
        st.sampled_from(["He go home.", "Is it, said Mr. Smith?", 'She say "Yes!"', "\u00c9t\u00e9 was hot."])
    )
)
def test_a_long_paragraph_is_cut_like_a_short_one(found: list[str]) -> None:
    padding = ["This sentence stands here to make the paragraph long."] * 40
    assert texts(" ".join([*padding, *found, *padding])) == [*padding, *found, *padding]
