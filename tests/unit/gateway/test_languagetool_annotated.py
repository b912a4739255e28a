"""Texts with markup in them: what is corrected, and where the corrections go."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.gateway.languagetool.annotated import AnnotatedText, Part
from copydesk.text import Edit, apply, edits, segment

WORDS = ["she ", "go ", "goes ", "to", " school", ".", " ", ", ", "\n", "😀", "e\u0301", "x"]
some_text = st.lists(st.sampled_from(WORDS), max_size=6).map("".join)
some_markup = st.sampled_from(["<b>", "</b>", "$x^2$", "\\cite{a}", "<br/>", ""])
reads = st.sampled_from(["", "", "Dummy0", "\n\n", " "])
parts = st.lists(
    st.one_of(
        some_text.map(Part),
        st.builds(Part, some_markup, is_markup=st.just(True), read_as=reads),
    ),
    max_size=8,
)


def markup(content: str, read_as: str = "") -> Part:
    return Part(content, is_markup=True, read_as=read_as)


def pieces_of_markup(found: list[Part]) -> list[str]:
    return [part.content for part in found if part.is_markup]


def corrected(found: list[Part], target: str) -> str:
    text = AnnotatedText(found)
    return apply(text.whole, text.placed(edits(text.plain, target)))


@given(parts)
def test_the_whole_is_what_the_client_has_and_the_plain_text_what_is_read(found: list[Part]) -> None:
    text = AnnotatedText(found)
    assert text.whole == "".join(part.content for part in found)
    assert text.plain == "".join(part.read_as if part.is_markup else part.content for part in found)


@given(parts, some_text)
def test_edits_ascend_stay_apart_and_touch_no_markup(found: list[Part], target: str) -> None:
    text = AnnotatedText(found)
    placed = text.placed(edits(text.plain, target))
    assert all(before.end <= after.start for before, after in itertools.pairwise(placed))
    ends = list(itertools.accumulate(len(part.content) for part in found))
    for part, end in zip(found, ends, strict=True):
        start = end - len(part.content)
        if part.is_markup and part.content:
            assert not any(edit.start < end and start < edit.end for edit in placed)


@given(parts, some_text)
def test_every_edit_covers_something(found: list[Part], target: str) -> None:
    text = AnnotatedText(found)
    assert all(edit.start < edit.end for edit in text.placed(edits(text.plain, target)))


@given(st.lists(some_text, max_size=5), some_text)
def test_without_markup_the_result_is_the_corrected_text(texts: list[str], target: str) -> None:
    found = [Part(text) for text in texts]
    if AnnotatedText(found).whole:
        assert corrected(found, target) == target


@given(st.lists(st.sampled_from(["go", "home", "now"]), min_size=2, max_size=6), st.data())
def test_words_wholly_within_a_text_are_corrected_wherever_markup_is(
    words: list[str], data: st.DataObject
) -> None:
    """Markup between words, read as nothing: each word that is wrong is within one stretch of text."""
    found: list[Part] = []
    for word in words:
        found += [Part(f"{word} "), *([markup("<i>")] if data.draw(st.booleans()) else [])]
    plain = "".join(f"{word} " for word in words)
    whole = "".join(part.content for part in found)
    assert corrected(found, plain.replace("go", "goes")) == whole.replace("go", "goes")


@pytest.mark.parametrize(
    ("found", "target", "expected"),
    [
        (
            [Part("She "), markup("<b>"), Part("go"), markup("</b>"), Part(" home.")],
            "She goes home.",
            "She <b>goes</b> home.",
        ),
        (
            [Part("She go"), markup("<br>", "\n\n"), Part("He run.")],
            "She goes\n\nHe runs.",
            "She goes<br>He runs.",
        ),
        ([Part("I want go"), markup("</i>")], "I want to go", "I want to go</i>"),
        ([Part("I want"), markup("<i>"), Part(" go.")], "I want to go.", "I want<i> to go."),
        ([Part("Let "), markup("$x$", "Dummy0"), Part(" is two.")], "Let Dummy0 be two.", "Let $x$ be two."),
        ([Part("However"), markup("</b>"), Part(" he runs")], "However, he runs", "However,</b> he runs"),
    ],
)
def test_corrections_go_where_a_writer_would_put_them(found: list[Part], target: str, expected: str) -> None:
    assert corrected(found, target) == expected


def test_an_edit_across_markup_is_cut_down_to_what_it_changes() -> None:
    found = [Part("He wal"), markup("<i>"), Part("ks</i"), markup("></i>"), Part(" home.")]
    assert corrected([Part("He wal"), markup("<i>"), Part("ks home.")], "He walked home.") == "He wal<i>ked home."
    assert corrected(found, "He walks</i home.") == "He wal<i>ks</i></i> home."


def test_an_edit_that_changes_both_sides_of_markup_is_left_out() -> None:
    found = [Part("She te"), markup("<b>"), Part("st go.")]
    assert corrected(found, "She ramp go.") == "She te<b>st go."
    assert corrected(found, "She ramp goes.") == "She te<b>st goes."


def test_what_markup_is_read_as_is_not_corrected() -> None:
    found = [Part("See "), markup("\\ref{a}", "Dummies"), Part(" here.")]
    assert corrected(found, "See dummy there.") == "See \\ref{a} there."


def test_sentences_are_found_in_the_whole() -> None:
    text = AnnotatedText(
        [
            markup("<p>"),
            Part("She "),
            markup("<b>"),
            Part("runs"),
            markup("</b>"),
            Part("."),
            markup("</p><p>", "\n\n"),
            Part("He "),
            markup("$x$", "Dummy0"),
            markup("</p>"),
        ]
    )
    spans = [text.span(found.start, found.end) for found in segment(text.plain)]
    assert [text.whole[start:end] for start, end in spans] == ["She <b>runs</b>.", "He $x$"]


@given(parts)
def test_spans_of_the_whole_ascend_and_hold_the_text_they_stand_for(found: list[Part]) -> None:
    text = AnnotatedText(found)
    spans = [text.span(start, start + 1) for start in range(len(text.plain))]
    assert all(0 <= start <= end <= len(text.whole) for start, end in spans)
    assert all(before <= after for before, after in itertools.pairwise(spans))
    owners = [part for part in found for _ in part.plain]
    for (start, end), owner, character in zip(spans, owners, text.plain, strict=True):
        assert text.whole[start:end] == (owner.content if owner.is_markup else character)


def test_an_edit_of_nothing_but_markup_has_no_place() -> None:
    assert AnnotatedText([markup("<b>")]).placed([Edit(0, 0, "x")]) == []
