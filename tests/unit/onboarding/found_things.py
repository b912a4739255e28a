"""Results of onboarding's stages for tests: whole, and made by nobody's measurement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from copydesk.cli.onboarding.precision import Plan, plans_for
from copydesk.cli.onboarding.search import Gated, Made, SearchInputs, Tried
from copydesk.cli.onboarding.stages import Job
from copydesk.evaluation import Corpus, EvaluationResult, Example, Options, evaluate

DIGEST = "ab" * 32
INPUTS = SearchInputs(
    model=DIGEST, data="data", hardware="a processor", exact="float32", tool="copydesk 1", rounds=3, sentences=8
)
CHOICE = plans_for(device="cpu", exact="float32", names=("original", "int8"))
JOB = Job(name="letters", inputs=INPUTS, choice=CHOICE, quick=True)


@dataclass(frozen=True)
class Said:
    text: str
    outcome: str = "corrected"


class Writer:
    """Writes `after` for `before`, and nothing else."""

    def __init__(self, name: str, before: str = "", after: str = "") -> None:
        self.name = name
        self.facts: dict[str, str] = {}
        self._before = before
        self._after = after

    def correct(self, texts: Sequence[str]) -> list[Said]:
        return [Said(text.replace(self._before, self._after) if self._before else text) for text in texts]


def corpus(count: int = 120) -> Corpus:
    wrong = [Example(f"She go <home> {n}.", (f"She goes <home> {n}.",)) for n in range(count)]
    return Corpus("pairs", tuple(wrong), clean=tuple(f"All is well {n}." for n in range(count)))


def evaluated(*, worse: bool = False, alone: bool = False, count: int = 120) -> EvaluationResult:
    """An evaluation of one that corrects everything, or nothing, against one that corrects everything."""
    good = Writer("original", " go ", " goes ")
    candidate = Writer("candidate", " well ", " ill ") if worse else good
    return evaluate(
        candidate, None if alone else good, corpus(count), Options(alone=0, resamples=100, edits="own")
    )


def tried(
    plan: Plan, rates: tuple[float, ...] = (), *, agreement: float = 1.0, size: int = 100, reason: str = ""
) -> Tried:
    gated = Gated(verdict="pass", gleu=50.0, gleu_reference=50.0, agreement=agreement)
    made = Made(directory="/nowhere", digest=DIGEST, bytes=size)
    from copydesk.cli.onboarding.speed import rate_of

    return Tried(
        plan=plan, made=made, gated=gated, rates=rates, rate=rate_of(rates) if rates else None, reason=reason
    )
