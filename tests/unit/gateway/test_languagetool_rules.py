"""Rules, which of them are wanted, and languages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.gateway.faults import ApiError
from copydesk.gateway.languagetool.languages import LANGUAGES, language_of
from copydesk.gateway.languagetool.rules import RULES, Selection
from copydesk.text import Kind

SPELLING, GRAMMAR, WHITESPACE = RULES[Kind.SPELLING], RULES[Kind.GRAMMAR], RULES[Kind.WHITESPACE]
ids = st.frozensets(st.sampled_from([rule.id for rule in RULES.values()]), max_size=3)
categories = st.frozensets(st.sampled_from([rule.category.id for rule in RULES.values()]), max_size=3)


def test_there_is_one_rule_for_each_kind() -> None:
    assert set(RULES) == set(Kind)
    assert len({rule.id for rule in RULES.values()}) == len(RULES)


def test_at_first_all_rules_are_wanted() -> None:
    assert all(Selection().allows(rule) for rule in RULES.values())


def test_a_rule_or_a_category_can_be_switched_off() -> None:
    assert not Selection(disabled_rules=frozenset([SPELLING.id])).allows(SPELLING)
    assert Selection(disabled_rules=frozenset([SPELLING.id])).allows(GRAMMAR)
    assert not Selection(disabled_categories=frozenset(["TYPOGRAPHY"])).allows(WHITESPACE)


def test_an_enabled_rule_stays_where_its_category_is_switched_off() -> None:
    selection = Selection(frozenset([WHITESPACE.id]), disabled_categories=frozenset(["TYPOGRAPHY"]))
    assert selection.allows(WHITESPACE)
    assert not selection.allows(RULES[Kind.TYPOGRAPHY])


def test_a_disabled_rule_stays_off_where_its_category_is_enabled() -> None:
    selection = Selection(disabled_rules=frozenset([WHITESPACE.id]), enabled_categories=frozenset(["TYPOGRAPHY"]))
    assert not selection.allows(WHITESPACE)
    assert selection.allows(RULES[Kind.TYPOGRAPHY])


@given(ids, categories)
def test_enabled_only_leaves_what_is_named(rules: frozenset[str], groups: frozenset[str]) -> None:
    selection = Selection(rules, enabled_categories=groups, enabled_only=True)
    for rule in RULES.values():
        assert selection.allows(rule) == (rule.id in rules or rule.category.id in groups)


@pytest.mark.parametrize(
    ("code", "preferred", "expected"),
    [
        ("auto", [], "en-US"),
        ("auto", ["de-AT", "en-GB", "en-AU"], "en-GB"),
        ("auto", ["de-AT"], "en-US"),
        ("AUTO", [], "en-US"),
        ("en", [], "en"),
        ("en-za", [], "en-ZA"),
    ],
)
def test_languages_are_found_by_code_and_variant(code: str, preferred: list[str], expected: str) -> None:
    assert language_of(code, preferred).long_code == expected


@pytest.mark.parametrize(
    ("code", "preferred", "error", "param"),
    [
        ("de-DE", [], "unknown_language", "language"),
        ("", [], "unknown_language", "language"),
        ("auto", ["en-XX"], "unknown_language", "preferredVariants"),
        ("auto", ["en"], "invalid_language", "preferredVariants"),
        ("en-US", ["en-GB"], "invalid_language", "preferredVariants"),
    ],
)
def test_other_languages_are_refused(code: str, preferred: list[str], error: str, param: str) -> None:
    with pytest.raises(ApiError) as caught:
        language_of(code, preferred)
    assert (caught.value.status, caught.value.code, caught.value.param) == (400, error, param)


def test_an_unknown_language_is_refused_in_the_words_that_clients_look_for() -> None:
    with pytest.raises(ApiError, match="'gg' is not a language code known to LanguageTool") as caught:
        language_of("gg", [])
    assert all(language.long_code in caught.value.message for language in LANGUAGES)
