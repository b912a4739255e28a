"""GLEU over a whole corpus at once: its score, what one sentence does to it, and its scores in resamples.

The score is that of `copydesk.text.metrics`, whose counts of sentences are laid out here as rows of numbers, so
that a thousand resamples cost a few products of matrices. The 500 draws of references are those that the published
implementation makes (keisks/jfleg, eval/gleu.py, under Python 2): figures are the same to the last digit, and the
draws the same for whoever is scored, so that a difference between two models is none of luck.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from copydesk.text.metrics import MAX_ORDER, gleu_counts

DRAWS = 500
"""Of one reference a sentence, as in the published implementation."""
RESAMPLED_DRAWS = 100
"""That resamples use: the doubt that the others would remove is a hundredth of that between sentences."""

_SEED_STEP = 101

Array = NDArray[np.float64]
_COLUMNS = 2 + 2 * MAX_ORDER
"""Tokens of the answer, tokens of the reference, matches of each order, n-grams of each order."""


class References:
    """Tokenised sentences with their references, and which reference each draw takes."""

    def __init__(self, sources: Sequence[str], references: Sequence[Sequence[str]]) -> None:
        self.sources = [source.split() for source in sources]
        self.references = [[variant.split() for variant in variants] for variants in references]
        self._picks = _picks([len(variants) for variants in references])

    def count(self, answers: Sequence[str]) -> Answers:
        """Count the n-grams of tokenised answers against every reference."""
        most = max(map(len, self.references), default=1)
        rows = np.zeros((len(self.sources), most, _COLUMNS))
        for place, (source, answer) in enumerate(zip(self.sources, answers, strict=True)):
            for variant, reference in enumerate(self.references[place]):
                counts = gleu_counts(source, answer.split(), reference)
                rows[place, variant] = (
                    counts.hypothesis_tokens,
                    counts.reference_tokens,
                    *counts.matches,
                    *counts.totals,
                )
        return Answers(rows, self._picks)


class Answers:
    """The n-grams of one model's answers. Scores are 0 to 100."""

    def __init__(self, rows: Array, picks: NDArray[np.int64]) -> None:
        self._rows = rows
        self._picks = picks

    def score(self) -> float:
        """The GLEU of the corpus: the mean over all draws."""
        return float(np.mean([_score(drawn.sum(axis=0)) for drawn in self._draws(DRAWS)]))

    def resampled(self, weights: Array) -> Array:
        """The score of each resample, of which `weights` says in a row how often it has each sentence."""
        total = np.zeros(len(weights))
        draws = list(self._draws(RESAMPLED_DRAWS))
        for drawn in draws:
            total += _score(weights @ drawn)
        return total / len(draws)

    def effects(self, other: Answers) -> Array:
        """For each sentence, by how much the score is higher than if `other`'s answer to it stood in its place."""
        effect = np.zeros(len(self._rows))
        draws = list(zip(self._draws(RESAMPLED_DRAWS), other._draws(RESAMPLED_DRAWS), strict=True))
        for ours, theirs in draws:
            whole = ours.sum(axis=0)
            effect += _score(whole) - _score(whole - ours + theirs)
        return effect / len(draws)

    def _draws(self, most: int) -> Iterator[Array]:
        places = np.arange(len(self._rows))
        for pick in self._picks[:most]:
            yield self._rows[places, pick]


def _picks(counts: Sequence[int]) -> NDArray[np.int64]:
    """For every draw, which reference of each sentence; one draw where there is nothing to choose."""
    if max(counts, default=1) == 1:
        return np.zeros((1, len(counts)), dtype=np.int64)
    picks = np.empty((DRAWS, len(counts)), dtype=np.int64)
    for draw in range(DRAWS):
        rng = random.Random(_SEED_STEP * draw)
        picks[draw] = [int(rng.random() * count) for count in counts]
    return picks


def _score(sums: Array) -> Array:
    """The score of each row of summed counts, as `GleuCounts.score` has it."""
    answer, reference = sums[..., 0], sums[..., 1]
    matches, totals = sums[..., 2 : 2 + MAX_ORDER], sums[..., 2 + MAX_ORDER :]
    # Whole numbers, but for rounding: a match is 1 or more.
    scored: NDArray[np.bool_] = np.asarray((matches > 0.5).all(axis=-1))
    ratios = np.where(scored[..., None], matches, 1.0) / np.where(scored[..., None], totals, 1.0)
    brevity = np.minimum(0.0, 1.0 - reference / np.where(scored, answer, 1.0))
    score: Array = np.where(scored, 100.0 * np.exp(brevity + np.log(ratios).mean(axis=-1)), 0.0)
    return score
