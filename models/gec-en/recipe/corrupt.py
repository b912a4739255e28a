"""Learner-like corruption of clean, tagged English sentences.

The mix follows what corpora of learners report: spelling, articles, prepositions, number, verb forms and tense,
agreement, punctuation, capitals, word order, words missing or too many, word choice and word form.
"""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Callable, Iterable, Sequence

from recipe import clause_errors as clause
from recipe import grammar_errors as grammar
from recipe import surface_errors as surface
from recipe.sentence import Sentence, Tagged
from recipe.spelling import Typos

Error = Callable[[Sentence, random.Random], bool]

USUAL: list[tuple[Error, int]] = [
    (grammar.verb, 12),
    (grammar.agreement, 9),
    (grammar.number, 11),
    (grammar.determiner, 13),
    (grammar.preposition, 11),
    (grammar.pronoun, 3),
    (grammar.confusion, 5),
    (grammar.wrong_word, 4),
    (grammar.word_form, 5),
    (grammar.comparison, 2),
    (surface.punctuation, 9),
    (surface.clause_comma, 12),
    (surface.capitals, 5),
    (surface.order, 3),
    (surface.missing, 6),
    (surface.extra, 5),
    (grammar.conjunction, 2),
    (grammar.modal, 4),
    (surface.space, 3),
    (clause.embedded_question, 8),
    (clause.condition, 4),
    (clause.tense, 4),
    (clause.asked_without_do, 6),
    (clause.complement, 5),
    (clause.gerund_after_preposition, 5),
    (grammar.phrase, 8),
    (grammar.contraction, 6),
    (clause.subject_twice, 1),
]
SHORT: list[tuple[Error, int]] = [
    (grammar.verb, 12),
    (grammar.agreement, 16),
    (grammar.number, 6),
    (grammar.determiner, 12),
    (grammar.preposition, 7),
    (grammar.pronoun, 4),
    (grammar.confusion, 16),
    (grammar.wrong_word, 4),
    (grammar.comparison, 3),
    (grammar.modal, 5),
    (grammar.phrase, 3),
    (grammar.contraction, 14),
    (surface.punctuation, 9),
    (surface.capitals, 3),
    (surface.missing, 5),
    (surface.extra, 2),
    (clause.tense, 4),
    (clause.asked_without_do, 6),
    (clause.complement, 8),
    (clause.gerund_after_preposition, 16),
]
"""The mix of everyday sentences, in which little words go wrong."""
_SPELLING_WEIGHT = 30
_ERRORS_PER_TOKEN = (0.06, 0.12, 0.18, 0.26)
_SPELLERS = (0.3, 1.0, 1.0, 4.0)
"""Authors differ in skill: how many errors they make, and how many of those are misspellings."""


class Corruptor:
    """Puts errors of a mix into sentences; `typos` are known misspellings by word."""

    def __init__(self, typos: Typos | None = None, mix: Sequence[tuple[Error, int]] = USUAL) -> None:
        known = typos or {}

        def spell(words: Sentence, rng: random.Random) -> bool:
            return surface.spell(words, rng, known)

        self._errors: list[Error] = [spell, *(error for error, _ in mix)]
        self._weights = [_SPELLING_WEIGHT, *(weight for _, weight in mix)]

    def corrupt(self, tokens: Iterable[Tagged], rng: random.Random, keep: float = 0.12) -> str:
        """The text with errors in it, or, with probability `keep`, as it is."""
        words = Sentence.of(tokens)
        if rng.random() < keep:
            return str(words)
        wanted = _error_count(len(words), rng)
        weights = [self._weights[0] * rng.choice(_SPELLERS), *self._weights[1:]]
        made = tries = 0
        while made < wanted and tries < 12 * wanted:
            tries += 1
            error = rng.choices(self._errors, weights)[0]
            with contextlib.suppress(IndexError, KeyError):  # no room for this one here
                made += error(words, rng)
            if len(words) < 2:
                break
        return str(words)


def _error_count(length: int, rng: random.Random) -> int:
    """Poisson distributed around a rate by token; at least one, at most a third of the tokens."""
    floor = math.exp(-rng.choice(_ERRORS_PER_TOKEN) * length)
    count, product = 0, rng.random()
    while product > floor:
        count, product = count + 1, product * rng.random()
    return max(1, min(count, length // 3))
