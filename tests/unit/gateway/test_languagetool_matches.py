"""From edits to LanguageTool's matches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.gateway.languagetool.annotated import AnnotatedText, Part
from copydesk.gateway.languagetool.matches import Document, sentences_of
from copydesk.gateway.languagetool.rules import RULES, Selection
from copydesk.gateway.languagetool.schemas import CheckMatch
from copydesk.text import Kind, edits, segment

words = st.sampled_from(
    ["she ", "go ", "goes", " to", "school", ".", ",", " ", "\n", "😀", "é", "don't", "Don\u2019t"]
)
texts = st.one_of(st.lists(words, max_size=15).map("".join), st.text(max_size=40))


def document(text: AnnotatedText) -> Document:
    return Document(text, sentences_of(text, segment(text.plain)))


def matches(source: str, target: str, selection: Selection = Selection()) -> list[CheckMatch]:  # noqa: B008
    return list(document(AnnotatedText.without_markup(source)).matches(edits(source, target), selection))


def units(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass")


def replaced(source: str, found: Iterable[CheckMatch]) -> str:
    """Put the first replacement of each match in its place, as a client does that counts UTF-16 units."""
    result = units(source)
    for match in sorted(found, key=lambda match: -match.offset):
        start, end = 2 * match.offset, 2 * (match.offset + match.length)
        result = result[:start] + units(match.replacements[0].value) + result[end:]
    return result.decode("utf-16-le", "surrogatepass")


@given(texts, texts)
def test_the_replacements_give_the_corrected_text(source: str, target: str) -> None:
    if source:
        assert replaced(source, matches(source, target)) == target


@given(texts, texts)
def test_matches_have_a_length_a_known_rule_and_the_text_they_are_of_in_their_context(
    source: str, target: str
) -> None:
    for match in matches(source, target):
        assert match.length > 0
        assert match.rule.id in {rule.id for rule in RULES.values()}
        shown, wanted = units(match.context.text), units(source.replace("\n", " "))
        assert (
            shown[2 * match.context.offset : 2 * (match.context.offset + match.context.length)]
            == wanted[2 * match.offset : 2 * (match.offset + match.length)]
        )


@given(texts, texts, st.sets(st.sampled_from(list(Kind))))
def test_disabled_rules_take_out_their_matches_and_no_others(source: str, target: str, kinds: set[Kind]) -> None:
    disabled = frozenset(RULES[kind].id for kind in kinds)
    kept = matches(source, target, Selection(disabled_rules=disabled))
    assert kept == [match for match in matches(source, target) if match.rule.id not in disabled]


def only(found: Sequence[CheckMatch]) -> CheckMatch:
    (match,) = found
    return match


def test_offsets_count_utf16_units_and_the_context_does_too() -> None:
    match = only(matches("😀😀 She go home.", "😀😀 She goes home."))
    assert (match.offset, match.length) == (9, 2)
    assert (match.context.text, match.context.offset, match.context.length) == ("😀😀 She go home.", 9, 2)


def test_a_long_text_is_shown_in_part() -> None:
    source = "It is so. " * 8 + "She go\nhome. " + "It is so. " * 8
    match = only(matches(source, source.replace("go", "goes")))
    assert match.context.text.startswith("...")
    assert match.context.text.endswith("...")
    assert match.context.text[match.context.offset :].startswith("go home. ")
    assert match.sentence == "She go\nhome."


@pytest.mark.parametrize(
    ("source", "target", "rule", "issue", "category", "kind"),
    [
        ("I recieved it.", "I received it.", "COPYDESK_SPELLING", "misspelling", "TYPOS", "UnknownWord"),
        ("She go home.", "She goes home.", "COPYDESK_GRAMMAR", "grammar", "GRAMMAR", "Other"),
        ("Yes he can.", "Yes, he can.", "COPYDESK_PUNCTUATION", "typographical", "PUNCTUATION", "Other"),
        ("On monday.", "On Monday.", "COPYDESK_CASING", "typographical", "CASING", "Other"),
        ("Yes ,he can.", "Yes, he can.", "COPYDESK_WHITESPACE", "whitespace", "TYPOGRAPHY", "Other"),
        ("I don't.", "I don\u2019t.", "COPYDESK_TYPOGRAPHY", "typographical", "TYPOGRAPHY", "Other"),
    ],
)
def test_the_kind_of_the_edit_chooses_the_rule(
    source: str, target: str, rule: str, issue: str, category: str, kind: str
) -> None:
    match = only(matches(source, target))
    assert (match.rule.id, match.rule.issue_type, match.rule.category.id) == (rule, issue, category)
    assert match.type.type_name == kind
    assert all((match.short_message, match.rule.description, match.rule.category.name))
    assert match.replacements[0].value in match.message
    assert match.rule.is_premium is False


def test_what_needs_its_whole_sentence_says_so() -> None:
    grammar, spelling = only(matches("She go.", "She goes.")), only(matches("I recieved.", "I received."))
    assert (grammar.ignore_for_incomplete_sentence, grammar.context_for_sure_match) == (True, -1)
    assert (spelling.ignore_for_incomplete_sentence, spelling.context_for_sure_match) == (False, 0)


def test_a_deletion_offers_the_word_beside_it() -> None:
    match = only(matches("He is is here.", "He is here."))
    assert match.replacements[0].value.strip()
    assert match.length > len(match.replacements[0].value)


def test_a_long_replacement_is_shown_short() -> None:
    target = "So " + "very " * 40 + "good"
    assert len(only(matches("So good", target)).message) < 140


def test_matches_of_annotated_text_count_the_markup() -> None:
    text = AnnotatedText(
        [Part("A "), Part("<b>", is_markup=True), Part("😀 She go"), Part("</b>", is_markup=True)]
    )
    match = only(list(document(text).matches(edits(text.plain, "A 😀 She goes"), Selection())))
    assert (match.offset, match.length) == (12, 2)
    assert match.context.text == "A <b>😀 She go</b>"
    assert match.sentence == "A 😀 She go"


def test_sentence_ranges_are_in_utf16_units_without_outer_spaces() -> None:
    found = document(AnnotatedText.without_markup("😀 It is so. She runs. "))
    assert found.sentence_ranges() == [(0, 12), (13, 22)]
