"""From the edits of a correction to LanguageTool's matches: offsets in UTF-16 code units, rules, messages."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from copydesk.gateway.languagetool.annotated import AnnotatedText
from copydesk.gateway.languagetool.rules import RULES, Rule, Selection
from copydesk.gateway.languagetool.schemas import (
    CheckCategory,
    CheckContext,
    CheckMatch,
    CheckReplacement,
    CheckRule,
    CheckType,
)
from copydesk.text import Edit, Kind, Segment, Utf16, kind_of

CONTEXT_CHARACTERS = 40
"""How much of the text is shown on each side of a match; LanguageTool's own server shows as much."""

_MESSAGES = {
    Kind.SPELLING: "Possible spelling mistake: did you mean {new}?",
    Kind.GRAMMAR: "This may be a mistake of grammar: did you mean {new}?",
    Kind.PUNCTUATION: "The punctuation may be wrong: did you mean {new}?",
    Kind.CASING: "Capital or small letters may be wrong: did you mean {new}?",
    Kind.WHITESPACE: "Spaces may be missing or too many: did you mean {new}?",
    Kind.TYPOGRAPHY: "Typography: did you mean {new}?",
}
_NOTHING = "This may be too much."
_SHOWN_CHARACTERS = 80


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a document: its code points `[start, end)` in the whole, and its text without markup."""

    start: int
    end: int
    text: str


def sentences_of(text: AnnotatedText, segments: Iterable[Segment]) -> list[Sentence]:
    """Return the sentences that `segments` are, which were cut from what is read of `text`."""
    return [
        Sentence(*text.span(found.start, found.end), text.plain[found.start : found.end]) for found in segments
    ]


class Document:
    """A document whose sentences are known, to be asked for matches."""

    def __init__(self, text: AnnotatedText, sentences: Sequence[Sentence]) -> None:
        self._text = text
        self._sentences = sentences
        self._starts = [sentence.start for sentence in sentences]
        self._units = Utf16(text.whole)

    def sentence_ranges(self) -> list[tuple[int, int]]:
        """Return where the sentences are, in UTF-16 code units."""
        unit = self._units.unit
        return [(unit(sentence.start), unit(sentence.end)) for sentence in self._sentences]

    def matches(self, edits: Sequence[Edit], selection: Selection) -> Iterator[CheckMatch]:
        """Yield a match for each edit of what is read of the text, ascending, as far as its rule is selected.

        Putting the first replacement of each in its place makes the corrected text, markup untouched.
        """
        for edit in self._text.placed(edits):
            kind = kind_of(self._text.whole[edit.start : edit.end], edit.replacement)
            if selection.allows(RULES[kind]):
                yield self._match(edit, kind)

    def _match(self, edit: Edit, kind: Kind) -> CheckMatch:
        rule = RULES[kind]
        offset = self._units.unit(edit.start)
        length = self._units.unit(edit.end) - offset
        return CheckMatch(
            message=_message(kind, edit.replacement),
            short_message=rule.short_message,
            replacements=[CheckReplacement(edit.replacement)],
            offset=offset,
            length=length,
            context=self._context(edit, length),
            sentence=self._sentence(edit.start),
            type=CheckType(rule.type_name),
            rule=_rule(rule),
            ignore_for_incomplete_sentence=rule.whole_sentence,
            context_for_sure_match=-1 if rule.whole_sentence else 0,
        )

    def _context(self, edit: Edit, length: int) -> CheckContext:
        whole = self._text.whole
        start, end = max(0, edit.start - CONTEXT_CHARACTERS), min(len(whole), edit.end + CONTEXT_CHARACTERS)
        before, after = "..." if start else "", "..." if end < len(whole) else ""
        offset = len(before) + self._units.unit(edit.start) - self._units.unit(start)
        return CheckContext(before + whole[start:end].replace("\n", " ") + after, offset, length)

    def _sentence(self, position: int) -> str:
        index = max(0, bisect_right(self._starts, position) - 1)
        return self._sentences[index].text if self._sentences else ""


def _message(kind: Kind, new: str) -> str:
    shown = " ".join(new.split())
    if not shown:
        return _NOTHING
    if len(shown) > _SHOWN_CHARACTERS:
        shown = shown[: _SHOWN_CHARACTERS - 1] + "\u2026"
    return _MESSAGES[kind].format(new=f"\u201c{shown}\u201d")


def _rule(rule: Rule) -> CheckRule:
    return CheckRule(
        id=rule.id,
        description=rule.description,
        issue_type=rule.issue_type,
        category=CheckCategory(rule.category.id, rule.category.name),
    )
