"""The figures of one model's answers, each with its values in all resamples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from copydesk.evaluation.answers import Heard
from copydesk.evaluation.corpus import Corpus
from copydesk.evaluation.edit_counts import EditCounts, count_edits
from copydesk.evaluation.gleu import Answers, References
from copydesk.evaluation.resampling import Array, ratio, weights
from copydesk.evaluation.typed_edits import Annotator, TypedEdit
from copydesk.text.alignment import common_length
from copydesk.text.metrics import EditScore
from copydesk.text.treebank import to_tokens


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure over some number of `sentences`: its value, and what it is in each resample."""

    value: float
    resampled: Array
    sentences: int

    def minus(self, other: Figure) -> Figure:
        """The difference, in each resample of the same sentences."""
        return Figure(self.value - other.value, self.resampled - other.resampled, self.sentences)


@dataclass(frozen=True, slots=True)
class Scored:
    """One model's answers, scored: `answers` are written like the corpus, a line an example.

    `clean_changed` has a 1 for each clean sentence that was changed.
    """

    answers: tuple[str, ...]
    ngrams: Answers
    edits: EditCounts
    clean_changed: Array
    figures: dict[str, Figure]


class Scorer:
    """Scores the answers to one corpus, with the same resamples whoever gave them."""

    def __init__(self, corpus: Corpus, annotator: Annotator, *, resamples: int, seed: int) -> None:
        self.corpus = corpus
        self.lines = [example.source for example in corpus.examples]
        self.texts = [corpus.text(line) for line in self.lines]
        clean = [text for text, one in zip(self.texts, corpus.examples, strict=True) if one.is_clean]
        self.clean = [*clean, *corpus.clean]
        self.asked = list(dict.fromkeys([*self.texts, *corpus.clean]))
        self._annotator = annotator
        self._sources = [corpus.tokens(line) for line in self.lines]
        self._variants = [[corpus.tokens(one) for one in example.references] for example in corpus.examples]
        self._references = References(self._sources, self._variants)
        self._wanted = [annotator.edits(*pair) for pair in zip(self._sources, self._variants, strict=True)]
        self._weights = weights(len(self.lines), resamples, seed)
        self._clean_weights = weights(len(self.clean), resamples, seed + 1) if self.clean else None
        self._asked_weights = weights(len(self.asked), resamples, seed + 2)
        self._seed = seed

    def score(self, heard: Heard) -> Scored:
        """Score what one subject said."""
        plain = [heard.texts[text] for text in self.texts]
        answers = [self.corpus.answer(*pair) for pair in zip(self.lines, plain, strict=True)]
        tokens = [self.corpus.tokens(answer) for answer in answers]
        ngrams = self._references.count(tokens)
        pairs = zip(self._sources, tokens, strict=True)
        proposed: list[list[TypedEdit]] = [self._annotator.edits(source, [target])[0] for source, target in pairs]
        edits = count_edits(proposed, self._wanted)
        changed = np.array([heard.texts[text] != text for text in self.clean], dtype=np.float64)
        figures = {
            "gleu": Figure(ngrams.score(), ngrams.resampled(self._weights), len(self.lines)),
            **self._edit_figures(edits),
            "exact_match": self._share(self._exact(answers), self._weights),
        }
        if self._clean_weights is not None:
            figures["over_correction"] = self._share(changed, self._clean_weights)
        return Scored(tuple(answers), ngrams, edits, changed, figures | self._latency(heard))

    def count_unchanged(self) -> Answers:
        """The n-grams of the text as it is."""
        return self._references.count(self._sources)

    def agreement(self, heard: Heard, other: Heard) -> dict[str, Figure]:
        """How far two subjects say the same: the share of equal sentences, and of words that both have.

        Of words it is twice those in common, in order, over all words of both.
        """
        pairs = [(to_tokens(heard.texts[text]), to_tokens(other.texts[text])) for text in self.asked]
        same = np.array([float(one == another) for one, another in pairs])
        common, all_ = np.array([_overlap(one.split(), another.split()) for one, another in pairs]).T
        resampled = ratio(self._asked_weights @ common, self._asked_weights @ all_, 1.0)
        value = float(common.sum() / all_.sum()) if all_.sum() else 1.0
        return {
            "agreement": Figure(value, resampled, len(pairs)),
            "agreement_sentences": self._share(same, self._asked_weights),
        }

    def _exact(self, answers: Sequence[str]) -> Array:
        pairs = zip(answers, self.corpus.examples, strict=True)
        return np.array([float(answer in example.references) for answer, example in pairs])

    def _share(self, hits: Array, drawn: Array) -> Figure:
        return Figure(float(hits.mean()), drawn @ hits / len(hits), len(hits))

    def _edit_figures(self, counts: EditCounts) -> dict[str, Figure]:
        rows = np.array([_row(score) for score in counts.sentences])
        right, wrong, missed = (self._weights @ rows).T
        precision, recall = ratio(right, right + wrong, 1.0), ratio(right, right + missed, 1.0)
        f_half = ratio(1.25 * precision * recall, 0.25 * precision + recall)
        total, sentences = counts.total, len(rows)
        return {
            "precision": Figure(total.precision, precision, sentences),
            "recall": Figure(total.recall, recall, sentences),
            "f0.5": Figure(total.f_half, f_half, sentences),
        }

    def _latency(self, heard: Heard) -> dict[str, Figure]:
        """P50 and P99, nearest rank, of sentences one at a time."""
        if not heard.alone_ms:
            return {}
        taken = np.array(heard.alone_ms)
        resamples = len(self._weights)
        picks = np.random.default_rng(self._seed + 3).integers(0, len(taken), size=(resamples, len(taken)))
        drawn = taken[picks]
        return {name: _quantile(taken, drawn, part) for name, part in (("p50_ms", 0.5), ("p99_ms", 0.99))}


def _quantile(taken: Array, drawn: Array, part: float) -> Figure:
    value = float(np.quantile(taken, part, method="inverted_cdf"))
    return Figure(value, np.quantile(drawn, part, axis=1, method="inverted_cdf"), len(taken))


def _row(score: EditScore) -> tuple[int, int, int]:
    return score.true_positives, score.false_positives, score.false_negatives


def _overlap(one: Sequence[str], other: Sequence[str]) -> tuple[float, float]:
    return 2.0 * common_length(one, other), float(len(one) + len(other))
