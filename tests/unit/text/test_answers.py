"""From answers of the model to edits of the original text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.text import AnswerCountError, Edit, Segment, SegmentMismatchError, apply, correct_segments, segment
from copydesk.text.whitespace import normalise
from tests.unit.text.hard_texts import any_text


def corrected(text: str, **replacements: str) -> str:
    segments = segment(text)
    answers = [found.text for found in segments]
    for old, new in replacements.items():
        answers = [answer.replace(old, new) for answer in answers]
    return apply(text, correct_segments(text, segments, answers))


@given(any_text, st.integers(1, 40))
def test_answers_equal_to_their_sentences_change_nothing(text: str, limit: int) -> None:
    segments = segment(text, max_characters=limit)
    assert correct_segments(text, segments, [found.text for found in segments]) == []


@given(any_text, st.integers(1, 40), st.data())
def test_each_sentence_becomes_its_answer_and_the_rest_stays(text: str, limit: int, data: st.DataObject) -> None:
    segments = segment(text, max_characters=limit)
    answers = [data.draw(st.one_of(any_text, st.just(found.text + " more"))) for found in segments]
    expected, done = "", 0
    for found, answer in zip(segments, answers, strict=True):
        own = correct_segments(text, [found], [answer])
        assert all(found.start <= edit.start <= edit.end <= found.end for edit in own)
        inside = [Edit(edit.start - found.start, edit.end - found.start, edit.replacement) for edit in own]
        sentence = apply(text[found.start : found.end], inside)
        assert normalise(sentence) == normalise(answer)
        expected += text[done : found.start] + sentence
        done = found.end
    assert apply(text, correct_segments(text, segments, answers)) == expected + text[done:]


def test_white_space_the_model_left_alone_stays() -> None:
    text = "He  go\tto\nschool every\u00a0day .\n\n  She  stay."
    assert corrected(text, go="goes", stay="stays") == "He  goes\tto\nschool every\u00a0day .\n\n  She  stays."


def test_edits_come_in_offsets_of_the_original() -> None:
    text = "😀  He\u00a0 go home."
    assert correct_segments(text, segment(text), ["😀 He goes home."]) == [Edit(7, 9, "goes")]


def test_a_deleted_word_leaves_the_newline_beside_it() -> None:
    assert corrected("she see the very\nold dog", **{"very ": ""}) == "she see the\nold dog"
    assert corrected("she see the\nvery old dog", **{"very ": ""}) == "she see the\nold dog"


def test_white_space_around_an_answer_does_not_count() -> None:
    text = "he go."
    assert correct_segments(text, segment(text), ["\n he\ngo.  \n"]) == []


def test_as_many_answers_as_segments_are_needed() -> None:
    with pytest.raises(AnswerCountError) as caught:
        correct_segments("a", segment("a"), [])
    assert (caught.value.segments, caught.value.answers) == (1, 0)


@pytest.mark.parametrize("stranger", [Segment(0, 2, "it"), Segment(0, 9, "he go home"), Segment(2, 5, " go")])
def test_segments_of_another_text_are_refused(stranger: Segment) -> None:
    with pytest.raises(SegmentMismatchError) as caught:
        correct_segments("he go", [stranger], ["x"])
    assert caught.value.segment == stranger
