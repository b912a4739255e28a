"""What an evaluation finds, as plain data: `copydesk model evaluate --json` prints it."""

from __future__ import annotations

from typing import Any

import msgspec

from copydesk.evaluation.gates import Gate, Verdict

VERSION = 1
"""Of the JSON object; a change of what a key means is a new one."""


class Estimate(msgspec.Struct, frozen=True):
    """A figure with its 95 % confidence interval."""

    value: float
    low: float
    high: float


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of the candidate and of the reference model, and the first less the second.

    GLEU is in points, 0 to 100, latencies in milliseconds, all else shares from 0 to 1.
    """

    sentences: int
    candidate: Estimate
    reference: Estimate | None = None
    difference: Estimate | None = None


class EditFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Edits of one type: those that are right, wrong and missed, and what follows, shares from 0 to 1."""

    right: int
    wrong: int
    missed: int
    precision: float
    recall: float
    f_half: float = msgspec.field(name="f0.5")


class TypeRow(msgspec.Struct, frozen=True, kw_only=True):
    """One type of edits."""

    type: str
    candidate: EditFigures
    reference: EditFigures | None = None


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """A model: what it is called, what tells it from others, and what it did.

    `changed` is how many sentences it changed, `kept` how many came back as they were because its answer was not
    to be believed, by outcome. `rate` is in sentences a second, side by side, null where none were asked for so.
    """

    name: str
    facts: dict[str, str]
    changed: int
    kept: dict[str, int]
    rate: float | None


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Sentences: those with references, of these and besides these those that are clean, and all that differ."""

    sentences: int
    references: int
    clean: int
    differing: int | None
    one_at_a_time: int


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence on which both models differ (alone: that the candidate changed), written like the corpus.

    `effect` is by how many points the GLEU of the corpus is higher for the candidate's answer; null for sentences
    without references. `types` are those of the edits from `before` to `after`.
    """

    source: str
    references: tuple[str, ...]
    before: str
    after: str
    effect: float | None
    types: tuple[str, ...]


class EvaluationResult(msgspec.Struct, frozen=True, kw_only=True):
    """An evaluation. Where no reference model was given, what compares the two is null.

    `gleu` and `gleu_unchanged` are in points, 0 to 100, the latter of the text as it is; the others from 0 to 1:
    the share of answers equal to one of the references, of clean sentences that were changed (null where there are
    none), of words that both models have in common. `edits_by` says who found the edits that precision, recall and
    F0.5 count. `notes` say what was left out, and why.
    """

    version: int = VERSION
    verdict: Verdict | None
    gleu: float
    gleu_reference: float | None
    gleu_unchanged: float
    exact_match: float
    over_correction: float | None
    agreement: float | None
    agreement_sentences: float | None
    candidate: Told
    reference: Told | None
    data: str
    tokenised: bool
    counts: Counts
    gates: tuple[Gate, ...]
    metrics: dict[str, Metric]
    edits_by: str
    types: tuple[TypeRow, ...]
    notes: tuple[str, ...]
    resamples: int
    seed: int
    changes: tuple[Change, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the sentences, ready for JSON."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        del plain["changes"]
        return plain
