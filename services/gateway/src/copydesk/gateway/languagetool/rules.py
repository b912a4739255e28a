"""What LanguageTool calls a rule: the name under which a kind of mistake is shown, coloured, and switched off."""

from __future__ import annotations

from dataclasses import dataclass

from copydesk.text import Kind


@dataclass(frozen=True, slots=True)
class Category:
    """A group of rules; the ids are LanguageTool's own, by which editors choose colours."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of mistake, in LanguageTool's terms.

    `issue_type` is a value of the Internationalization Tag Set 2.0 (Localization Quality Issue type), `type_name`
    what LanguageTool colours by; `whole_sentence` says that the mistake can only be told from all of its sentence,
    so that an editor may wait for its end.
    """

    id: str
    description: str
    category: Category
    issue_type: str
    short_message: str
    type_name: str = "Other"
    whole_sentence: bool = True


_TYPOGRAPHY = Category("TYPOGRAPHY", "Typography")

RULES = {
    Kind.SPELLING: Rule(
        "COPYDESK_SPELLING",
        "A word that is misspelt, or wrongly written as one or as two",
        Category("TYPOS", "Possible Typo"),
        "misspelling",
        "Spelling mistake",
        type_name="UnknownWord",
        whole_sentence=False,
    ),
    Kind.GRAMMAR: Rule(
        "COPYDESK_GRAMMAR",
        "A wrong form, a wrong word, one too many, or one that is missing",
        Category("GRAMMAR", "Grammar"),
        "grammar",
        "Grammar",
    ),
    Kind.PUNCTUATION: Rule(
        "COPYDESK_PUNCTUATION",
        "Punctuation that is wrong, missing, or too much",
        Category("PUNCTUATION", "Punctuation"),
        "typographical",
        "Punctuation",
    ),
    Kind.CASING: Rule(
        "COPYDESK_CASING",
        "Capital and small letters",
        Category("CASING", "Capitalization"),
        "typographical",
        "Capitalization",
    ),
    Kind.WHITESPACE: Rule(
        "COPYDESK_WHITESPACE",
        "Spaces that are missing or too many",
        _TYPOGRAPHY,
        "whitespace",
        "Spaces",
        whole_sentence=False,
    ),
    Kind.TYPOGRAPHY: Rule(
        "COPYDESK_TYPOGRAPHY",
        "Quotation marks, dashes and hyphens",
        _TYPOGRAPHY,
        "typographical",
        "Typography",
        whole_sentence=False,
    ),
}


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rules a request wants, by its `enabledRules`, `disabledRules` and so on; at first, all."""

    enabled_rules: frozenset[str] = frozenset()
    disabled_rules: frozenset[str] = frozenset()
    enabled_categories: frozenset[str] = frozenset()
    disabled_categories: frozenset[str] = frozenset()
    enabled_only: bool = False

    def allows(self, rule: Rule) -> bool:
        """Whether matches of `rule` are wanted: what names it counts before what names its category."""
        if rule.id in self.enabled_rules:
            return True
        if self.enabled_only:
            return rule.category.id in self.enabled_categories
        if rule.id in self.disabled_rules:
            return False
        return rule.category.id in self.enabled_categories or rule.category.id not in self.disabled_categories
