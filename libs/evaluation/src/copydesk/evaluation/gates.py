"""The verdict: does the candidate lose no more than it may?

A loss is measured on some sentences, and what is asked is about all of that kind. So a gate passes when the loss
is below its margin with 95 % confidence, fails when it is above with as much, and else says how many sentences
more it would likely take. It is a test of non-inferiority: a candidate that is not worse on few sentences has
shown nothing yet.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from copydesk.common.errors import CopydeskError
from copydesk.evaluation.figures import Figure
from copydesk.evaluation.resampling import Array, interval

CONFIDENCE = 0.95
"""That a loss is within its bound on one side; both bounds together hold 90 %."""
LEAST_TO_PASS = 50
"""Sentences. From fewer, if all are the same for both models, the bootstrap learns that nothing ever differs."""
LEAST_TO_FAIL = 10
MOST_NEEDED = 1_000_000
"""Sentences; whoever needs more has a loss that is its margin, and no number of them will tell."""

DEFAULT_MARGINS: Mapping[str, float] = {"gleu": 1.0, "over_correction": 2.0}
"""GLEU: on JFLEG one point is a tenth of what the default model gains over doing nothing, and what runs in another
arithmetic or batch differ by is a few tenths. Over-correction: a model changes a few percent of clean sentences,
two arithmetics disagree on some two percent, and a narrower margin takes more clean sentences than the set that
comes with Copydesk has."""


class Verdict(enum.StrEnum):
    """What a gate says, and all gates together."""

    PASS = "pass"  # noqa: S105 - no password
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


class MarginError(CopydeskError):
    """A margin that cannot be: `name` is no gate, or its value no number from 0 on."""

    exit_code = 2

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        super().__init__(f"margin {name}: {reason}")


@dataclass(frozen=True, slots=True)
class Loss:
    """By how much the candidate is worse, with both one-sided bounds."""

    value: float
    low: float
    high: float
    sentences: int


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """One gate. `loss` is in `unit`, with `confidence` at least `low` and at most `high`; `margin` is allowed.

    `needed` is how many sentences more it would likely take to tell, null where it is told or no number would do.
    """

    name: str
    what: str
    unit: str
    margin: float
    loss: float
    low: float
    high: float
    confidence: float
    sentences: int
    needed: int | None
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a gate is about, in words and in which unit."""

    what: str
    unit: str


KINDS: Mapping[str, _Kind] = {
    "gleu": _Kind("GLEU lost", "points"),
    "f0.5": _Kind("F0.5 of edits lost", "points"),
    "exact_match": _Kind("exact matches lost", "points"),
    "over_correction": _Kind("more clean sentences changed", "points"),
    "agreement": _Kind("words that differ from the reference model's", "percent"),
    "latency": _Kind("P50 latency added", "percent"),
}


def check_margins(margins: Mapping[str, float]) -> None:
    """Raise `MarginError` where one is not for a gate or cannot be."""
    for name, value in margins.items():
        if name not in KINDS:
            raise MarginError(name, f"no such gate; there are {', '.join(KINDS)}")
        if not 0.0 <= value < math.inf:
            raise MarginError(name, f"{value} is no margin, expected a number from 0 on")


def judge(name: str, loss: Loss, margin: float) -> Gate:
    """Judge one loss."""
    verdict = _verdict(loss, margin)
    return Gate(
        name=name,
        what=KINDS[name].what,
        unit=KINDS[name].unit,
        margin=margin,
        loss=loss.value,
        low=loss.low,
        high=loss.high,
        confidence=CONFIDENCE,
        sentences=loss.sentences,
        needed=needed(loss, margin) if verdict is Verdict.INCONCLUSIVE else None,
        verdict=verdict,
    )


def overall(gates: Sequence[Gate]) -> Verdict:
    """Fail if one gate does, pass if all do."""
    verdicts = {gate.verdict for gate in gates}
    if Verdict.FAIL in verdicts:
        return Verdict.FAIL
    return Verdict.PASS if verdicts == {Verdict.PASS} else Verdict.INCONCLUSIVE


def needed(loss: Loss, margin: float) -> int | None:
    """Say how many sentences more would likely tell: doubt shrinks with the square root of their number."""
    room = abs(margin - loss.value)
    doubt = loss.high - loss.value if loss.value <= margin else loss.value - loss.low
    if room * math.sqrt(MOST_NEEDED) <= doubt * math.sqrt(max(1, loss.sentences)):
        return None
    total = math.ceil(loss.sentences * (doubt / room) ** 2) if room else 0
    return max(1, max(total, LEAST_TO_PASS) - loss.sentences)


def loss_of(difference: Figure, scale: float) -> Loss:
    """The loss where more is better, `scale` times the difference; negative scales are for what is better low."""
    return _bounded(-scale * difference.value, -scale * difference.resampled, difference.sentences)


def distance_of(agreement: Figure) -> Loss:
    """The percentage of words that differ."""
    return _bounded(100.0 * (1.0 - agreement.value), 100.0 * (1.0 - agreement.resampled), agreement.sentences)


def slowdown_of(candidate: Figure, reference: Figure) -> Loss:
    """By how many percent of the reference's the latency is higher."""
    value = 100.0 * (candidate.value / max(reference.value, _LEAST_MS) - 1.0)
    resampled = 100.0 * (candidate.resampled / np.maximum(reference.resampled, _LEAST_MS) - 1.0)
    return _bounded(value, resampled, candidate.sentences)


def rise_of(candidate: Array, reference: Array) -> Loss:
    """By how many points more clean sentences were changed; the arrays have a 1 for each that was.

    Not by the bootstrap, which has no doubt where it has seen no difference, but by the adjusted Wald interval for
    paired shares: half an imaginary sentence is added to each of the four cases (Agresti and Min, "Simple improved
    confidence intervals for comparing matched proportions", Statistics in Medicine 2005).
    """
    sentences = len(candidate)
    worse = float(np.sum(candidate > reference)) + 0.5
    better = float(np.sum(candidate < reference)) + 0.5
    total = sentences + 2.0
    centre = (worse - better) / total
    spread = math.sqrt(max(0.0, worse + better - (worse - better) ** 2 / total)) / total
    reach = _Z * spread
    value = float(np.mean(candidate) - np.mean(reference))
    return Loss(100.0 * value, 100.0 * (centre - reach), 100.0 * (centre + reach), sentences)


_LEAST_MS = 1e-3
"""A latency below what clocks tell apart; nothing is to be divided by less."""
_Z = 1.6448536269514722
"""The standard normal's 95 % quantile."""


def _bounded(value: float, resampled: Array, sentences: int) -> Loss:
    low, high = interval(resampled, 2.0 * CONFIDENCE - 1.0)
    return Loss(value, low, high, sentences)


def _verdict(loss: Loss, margin: float) -> Verdict:
    if loss.sentences >= LEAST_TO_PASS and loss.high <= margin:
        return Verdict.PASS
    if loss.sentences >= LEAST_TO_FAIL and loss.low > margin:
        return Verdict.FAIL
    return Verdict.INCONCLUSIVE
