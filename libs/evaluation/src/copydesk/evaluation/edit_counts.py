"""Right, wrong and missed edits of a corpus, by sentence and by type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from copydesk.evaluation.typed_edits import TypedEdit
from copydesk.text.metrics import EditScore

Edits = Sequence[TypedEdit]


@dataclass(frozen=True, slots=True)
class EditCounts:
    """`sentences[i]` is that of sentence `i`; `types` has the same edits by type, as far as there are any."""

    sentences: tuple[EditScore, ...]
    types: dict[str, EditScore]

    @property
    def total(self) -> EditScore:
        """All sentences together."""
        return _sum(self.sentences)


@dataclass(slots=True)
class _Types:
    right: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)

    def add(self, proposed: Edits, wanted: Edits) -> None:
        """Count a sentence: what is right or missed by the type of the wanted edit, else by that of the other."""
        known = {edit.what: edit.type for edit in wanted}
        made = {edit.what: edit.type for edit in proposed}
        self.right.update(kind for what, kind in known.items() if what in made)
        self.missed.update(kind for what, kind in known.items() if what not in made)
        self.wrong.update(kind for what, kind in made.items() if what not in known)

    def scores(self) -> dict[str, EditScore]:
        """The score of each type."""
        names = sorted({*self.right, *self.wrong, *self.missed})
        return {name: EditScore(self.right[name], self.wrong[name], self.missed[name]) for name in names}


def count_edits(proposed: Sequence[Edits], references: Sequence[Sequence[Edits]]) -> EditCounts:
    """Compare the edits of each sentence with those of the reference that suits them best.

    As `errant_compare` does: the one that does the total up to here the most good, by F0.5, then by right, wrong
    and missed edits.
    """
    total = EditScore(0, 0, 0)
    sentences = []
    types = _Types()
    for edits_made, variants in zip(proposed, references, strict=True):
        best = max(variants, key=lambda wanted: _merit(_sum((total, _compare(edits_made, wanted)))))
        score = _compare(edits_made, best)
        total = _sum((total, score))
        sentences.append(score)
        types.add(edits_made, best)
    return EditCounts(tuple(sentences), types.scores())


def _compare(proposed: Edits, wanted: Edits) -> EditScore:
    made, known = {edit.what for edit in proposed}, {edit.what for edit in wanted}
    hits = len(made & known)
    return EditScore(hits, len(made) - hits, len(known) - hits)


def _merit(score: EditScore) -> tuple[float, int, int, int]:
    return score.f_half, score.true_positives, -score.false_positives, -score.false_negatives


def _sum(scores: Sequence[EditScore]) -> EditScore:
    return EditScore(
        sum(score.true_positives for score in scores),
        sum(score.false_positives for score in scores),
        sum(score.false_negatives for score in scores),
    )
