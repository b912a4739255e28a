"""How good a corrector is: GLEU, exact matches, precision and recall of its edits."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from copydesk.common.errors import CopydeskError
from copydesk.text.edit import Edit

MAX_ORDER = 4
"""N-grams of one to four tokens count, as in the papers."""


class UnequalCorpusError(CopydeskError):
    """Parallel lists that differ in length, or a sentence without a reference: it carries the `counts`."""

    def __init__(self, counts: Sequence[int]) -> None:
        self.counts = tuple(counts)
        super().__init__(f"parallel texts must be of one length and not empty, these have {self.counts}")


@dataclass(frozen=True, slots=True)
class GleuCounts:
    """What the score of a corpus is made of; counts of sentences add up to those of the corpus.

    `matches[n - 1]` of `totals[n - 1]` n-grams of the hypothesis were rewarded, less the penalties.
    """

    hypothesis_tokens: int
    reference_tokens: int
    matches: tuple[int, ...]
    totals: tuple[int, ...]

    def __add__(self, other: GleuCounts) -> GleuCounts:
        return GleuCounts(
            self.hypothesis_tokens + other.hypothesis_tokens,
            self.reference_tokens + other.reference_tokens,
            tuple(map(sum, zip(self.matches, other.matches, strict=True))),
            tuple(map(sum, zip(self.totals, other.totals, strict=True))),
        )

    def score(self) -> float:
        """Return the geometric mean of the precisions times the brevity penalty; 0 if an order has no match."""
        if not all(self.matches):
            return 0.0
        precisions = [math.log(match / total) for match, total in zip(self.matches, self.totals, strict=True)]
        brevity = min(0.0, 1 - self.reference_tokens / self.hypothesis_tokens)
        return math.exp(brevity + sum(precisions) / MAX_ORDER)


@dataclass(frozen=True, slots=True)
class EditScore:
    """Edits proposed and wanted (true positive), proposed only (false positive), wanted only (false negative)."""

    true_positives: int
    false_positives: int
    false_negatives: int

    @property
    def precision(self) -> float:
        """The share of the proposed edits that are wanted; 1 if none was proposed."""
        proposed = self.true_positives + self.false_positives
        return self.true_positives / proposed if proposed else 1.0

    @property
    def recall(self) -> float:
        """The share of the wanted edits that were proposed; 1 if none was wanted."""
        wanted = self.true_positives + self.false_negatives
        return self.true_positives / wanted if wanted else 1.0

    @property
    def f_half(self) -> float:
        """F0.5: precision weighs twice as much as recall, for a wrong correction hurts more than a missed one."""
        denominator = 0.25 * self.precision + self.recall
        return 1.25 * self.precision * self.recall / denominator if denominator else 0.0


def gleu_counts(source: Sequence[str], hypothesis: Sequence[str], reference: Sequence[str]) -> GleuCounts:
    """Count what one tokenised sentence adds to the GLEU of its corpus, against one reference.

    For each order: n-grams of the hypothesis that the reference has too (each as often as both have it), less
    those that it has in common with the n-grams of the source that the reference lacks: errors left in place.
    """
    matches, totals = [], []
    for order in range(1, MAX_ORDER + 1):
        hyp, ref, src = (_ngrams(tokens, order) for tokens in (hypothesis, reference, source))
        left_in_place = Counter({ngram: count for ngram, count in src.items() if ngram not in ref})
        matches.append(max(0, (hyp & ref).total() - (hyp & left_in_place).total()))
        totals.append(hyp.total())
    return GleuCounts(len(hypothesis), len(reference), tuple(matches), tuple(totals))


def gleu(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    rng: random.Random,
    draws: int = 500,
) -> float:
    """Return the corpus GLEU, 0 to 1, of `hypotheses`; texts are tokenised, with a space between tokens.

    Napoles et al., "Ground Truth for Grammatical Error Correction Metrics" (ACL 2015), in the form without
    tuning of "GLEU Without Tuning" (arXiv 1605.02592). `references[i]` holds every reference of sentence `i`:
    each draw picks one of them a sentence, and the score is the mean over the draws. With one reference a
    sentence there is nothing to draw.

    Raises:
        UnequalCorpusError: the lists differ in length or are empty, or a sentence has no reference.
    """
    _require_parallel(sources, hypotheses, references)
    if not all(references):
        raise UnequalCorpusError([len(variants) for variants in references])
    choices = [
        [gleu_counts(source.split(), hypothesis.split(), reference.split()) for reference in variants]
        for source, hypothesis, variants in zip(sources, hypotheses, references, strict=True)
    ]
    if all(len(variants) == 1 for variants in choices):
        draws = 1
    return sum(_draw(choices, rng) for _ in range(draws)) / draws


def exact_match(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Return the share of hypotheses that equal one of their references, character by character.

    Raises:
        UnequalCorpusError: the lists differ in length or are empty.
    """
    _require_parallel(hypotheses, references)
    hits = sum(hypothesis in variants for hypothesis, variants in zip(hypotheses, references, strict=True))
    return hits / len(hypotheses)


def edit_score(proposed: Sequence[Sequence[Edit]], wanted: Sequence[Sequence[Edit]]) -> EditScore:
    """Compare the proposed edits of each sentence with the wanted ones; an edit counts only if equal in full.

    Raises:
        UnequalCorpusError: the lists differ in length or are empty.
    """
    _require_parallel(proposed, wanted)
    hits = proposed_count = wanted_count = 0
    for ours, theirs in zip(proposed, wanted, strict=True):
        hits += (Counter(ours) & Counter(theirs)).total()
        proposed_count += len(ours)
        wanted_count += len(theirs)
    return EditScore(hits, proposed_count - hits, wanted_count - hits)


def _draw(choices: Sequence[Sequence[GleuCounts]], rng: random.Random) -> float:
    picked = [rng.choice(variants) for variants in choices]
    total = picked[0]
    for counts in picked[1:]:
        total += counts
    return total.score()


def _ngrams(tokens: Sequence[str], order: int) -> Counter[Hashable]:
    return Counter(tuple(tokens[start : start + order]) for start in range(len(tokens) - order + 1))


def _require_parallel(*lists: Sequence[object]) -> None:
    counts = [len(entries) for entries in lists]
    if not all(counts) or len(set(counts)) > 1:
        raise UnequalCorpusError(counts)
