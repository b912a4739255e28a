"""Right, wrong and missed edits, by our own kinds and by ERRANT's."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.evaluation.edit_counts import count_edits
from copydesk.evaluation.errant_edits import ErrantAnnotator, ErrantMissingError, annotator_of
from copydesk.evaluation.typed_edits import OwnAnnotator, TypedEdit
from copydesk.text.metrics import EditScore


def edit(start: int, replacement: str = "x", kind: str = "R:grammar") -> TypedEdit:
    return TypedEdit(start, start + 1, replacement, kind)


def test_own_types_say_what_is_done_and_to_what() -> None:
    source = "he go to to scool yesterday"
    found = OwnAnnotator().edits(source, ["He went to the school yesterday ."])[0]
    assert {one.type for one in found} >= {"R:casing", "M:punctuation"}
    (missing,) = OwnAnnotator().edits("I like cat .", ["I like the cat ."])[0]
    assert missing.type == "M:grammar"
    (gone,) = OwnAnnotator().edits("I like the the cat .", ["I like the cat ."])[0]
    assert gone.type == "U:grammar"
    (spelt,) = OwnAnnotator().edits("I like scool .", ["I like school ."])[0]
    assert (spelt.type, spelt.replacement) == ("R:spelling", "school")


def test_edits_of_an_unchanged_sentence_are_none() -> None:
    assert OwnAnnotator().edits("It is .", ["It is ."]) == [[]]


def test_an_edit_is_right_only_if_it_is_the_same_whatever_it_is_called() -> None:
    counts = count_edits([[edit(0), edit(2, "y")]], [[[edit(0, kind="R:spelling"), edit(3)]]])
    assert counts.total == EditScore(1, 1, 1)
    assert counts.types == {"R:spelling": EditScore(1, 0, 0), "R:grammar": EditScore(0, 1, 1)}


def test_each_sentence_is_held_against_the_reference_that_suits_it() -> None:
    counts = count_edits([[edit(0)], []], [[[edit(5)], [edit(0)]], [[edit(1)], []]])
    assert counts.sentences == (EditScore(1, 0, 0), EditScore(0, 0, 0))


def test_a_worked_example_of_errant_compare() -> None:
    # One sentence, two annotators: against the first 1 of 2 edits is right and 1 is missed, against the second
    # none is. errant_compare takes the first: P 1/2, R 1/2, F0.5 1/2.
    counts = count_edits([[edit(0), edit(2)]], [[[edit(0), edit(4)], [edit(6)]]])
    assert counts.total == EditScore(1, 1, 1)
    assert counts.total.f_half == pytest.approx(0.5)


EDITS = st.lists(st.integers(0, 4).map(edit), max_size=4, unique_by=lambda one: one.what)


@given(st.lists(st.tuples(EDITS, st.lists(EDITS, min_size=1, max_size=3)), min_size=1, max_size=5))
def test_types_and_sentences_add_up_to_the_same(rows: list[tuple[list[TypedEdit], list[list[TypedEdit]]]]) -> None:
    counts = count_edits([made for made, _ in rows], [wanted for _, wanted in rows])
    by_type = list(counts.types.values())
    assert counts.total == EditScore(
        sum(score.true_positives for score in by_type),
        sum(score.false_positives for score in by_type),
        sum(score.false_negatives for score in by_type),
    )


def test_without_errant_our_own_kinds_are_used_unless_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "errant", None)
    assert isinstance(annotator_of("auto"), OwnAnnotator)
    with pytest.raises(ErrantMissingError, match="pip install"):
        annotator_of("errant")


class WordByWord:
    """What ERRANT's annotator looks like from outside, for sentences of the same length."""

    def __init__(self) -> None:
        self.parsed: list[str] = []

    def parse(self, text: str) -> list[str]:
        self.parsed.append(text)
        return text.split()

    def annotate(self, source: Sequence[str], target: Sequence[str]) -> list[Any]:
        pairs = enumerate(zip(source, target, strict=True))
        return [
            SimpleNamespace(o_start=at, o_end=at + 1, c_str=new, type="UNK" if new == "?" else "R:VERB")
            for at, (old, new) in pairs
            if old != new
        ]


def test_errant_is_asked_once_a_text_and_what_it_leaves_is_no_edit(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = WordByWord()
    errant, language = ModuleType("errant"), ModuleType("en_core_web_sm")
    errant.load = lambda name, model: stand_in  # type: ignore[attr-defined]
    language.load = lambda disable: "model"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "errant", errant)
    monkeypatch.setitem(sys.modules, "en_core_web_sm", language)
    monkeypatch.setattr("importlib.metadata.version", lambda name: "3.0.2")
    annotator = ErrantAnnotator()
    assert annotator.name == "ERRANT 3.0.2"
    found = annotator.edits("she go ?", ["she goes ?", "she go ?", "we go ?"])
    assert found == [[TypedEdit(1, 2, "goes", "R:VERB")], [], [TypedEdit(0, 1, "we", "R:VERB")]]
    assert sorted(stand_in.parsed) == ["she go ?", "she goes ?", "we go ?"]


def test_the_real_errant_types_a_verb_that_does_not_agree() -> None:
    pytest.importorskip("errant")
    try:
        annotator = ErrantAnnotator()
    except ErrantMissingError as error:
        pytest.skip(str(error))
    assert annotator.edits("She go home .", ["She goes home ."])[0] == [TypedEdit(1, 2, "goes", "R:VERB:SVA")]
