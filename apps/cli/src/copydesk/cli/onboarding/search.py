"""Search for the fastest precision plan that loses nothing: make each, gate it, measure those that pass, choose.

What runs models is behind `Workshop`; the order, what is kept and the choice are here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from copydesk.cli.onboarding.ledger import Ledger, digest_of
from copydesk.cli.onboarding.precision import ORIGINAL, Plan
from copydesk.cli.onboarding.speed import Rate, Ratio, rate_of, ratio_of
from copydesk.common.errors import CopydeskError
from copydesk.evaluation import EvaluationResult, Verdict
from copydesk.evaluation.wording import gate_line

Tell = Callable[[str], None]


class PlanFailedError(CopydeskError):
    """A plan that cannot be tried with this model; `reason` says why."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """A model as a plan has it: where it is, the digest and the bytes of its weights."""

    directory: str
    digest: str
    bytes: int


class Gated(msgspec.Struct, frozen=True, kw_only=True):
    """What the gate said of a plan, in short. `losses` are a line for each gate."""

    verdict: str
    gleu: float
    gleu_reference: float
    agreement: float
    losses: tuple[str, ...] = ()


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """A plan and what was found out about it. None: it did not come to that; `reason` says why it is out."""

    plan: Plan
    made: Made | None = None
    gated: Gated | None = None
    rates: tuple[float, ...] = ()
    rate: Rate | None = None
    beside_original: Ratio | None = None
    reason: str = ""

    @property
    def passed(self) -> bool:
        """Whether it may serve."""
        return not self.reason and self.gated is not None


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What the search found. `choice` is None where no plan passes; `why` says why it is that one.

    `for_accelerator` is the smallest plan that passes among those whose speed cannot be measured here.
    """

    choice: str | None
    why: str
    tried: tuple[Tried, ...]
    notes: tuple[str, ...] = ()
    for_accelerator: str | None = None

    @property
    def chosen(self) -> Tried | None:
        """The plan that was chosen."""
        return next((one for one in self.tried if one.plan.name == self.choice), None)


class Workshop(Protocol):
    """Makes models, asks them and times them."""

    def make(self, plan: Plan, tell: Tell) -> Made:
        """Return the model as the plan has it, made if it has to be; raises `PlanFailedError`."""
        ...

    def evaluate(self, plan: Plan, made: Made, tell: Tell) -> EvaluationResult:
        """Hold it against the original; raises `PlanFailedError`."""
        ...

    def race(self, entries: Sequence[tuple[Plan, Made]], rounds: int, tell: Tell) -> list[list[float]]:
        """Return sentences a second of each in each round; they take turns. Raises `PlanFailedError`."""
        ...


class SearchInputs(msgspec.Struct, frozen=True, kw_only=True):
    """All that the outcome of a search depends on, but for the plans: what is compared is compared alike.

    `model` and `data` are digests, `margins` those of the gate, `hardware` what the speed is measured on.
    """

    model: str
    data: str
    hardware: str
    exact: str
    tool: str
    margins: dict[str, float] = {}
    rounds: int = 5
    sentences: int = 0


def search(
    plans: Sequence[Plan],
    inputs: SearchInputs,
    workshop: Workshop,
    ledger: Ledger,
    tell: Tell,
    *,
    notes: Sequence[str] = (),
    clock: Callable[[], float] = time.monotonic,
) -> Found:
    """Try every plan and choose one; what is in the ledger is not done again."""
    tried = [_gated(plan, inputs, workshop, ledger, tell, clock) for plan in plans]
    tried = _raced(tried, inputs, workshop, ledger, tell, clock)
    return choose(tried, notes)


def _gated(
    plan: Plan, inputs: SearchInputs, workshop: Workshop, ledger: Ledger, tell: Tell, clock: Callable[[], float]
) -> Tried:
    step, key = f"plan {plan.name}", digest_of(plan, inputs.model, inputs.data, inputs.margins, inputs.tool)
    found = ledger.find(step, key, Tried)
    if found is not None and _is_there(found[0].made):
        tell(f"{plan.name}: {_outcome(found[0])} (kept)")
        return found[0]
    began = clock()
    made = None
    try:
        made = workshop.make(plan, tell)
        tried = judged(plan, made, workshop.evaluate(plan, made, tell))
    except PlanFailedError as error:
        tried = Tried(plan=plan, made=made, reason=error.reason)
    seconds = clock() - began
    if tried.gated is not None:  # what kept it from being tried may be gone the next time, as a lack of memory
        ledger.keep(step, key, tried, seconds)
    tell(f"{plan.name}: {_outcome(tried)} ({seconds:.0f} s)")
    return tried


def judged(plan: Plan, made: Made, result: EvaluationResult) -> Tried:
    """Say what an evaluation means for a plan. The original is what all are held against, and passes."""
    gated = Gated(
        verdict=str(result.verdict or Verdict.PASS),
        gleu=result.gleu,
        gleu_reference=result.gleu if result.gleu_reference is None else result.gleu_reference,
        agreement=1.0 if result.agreement is None else result.agreement,
        losses=tuple(gate_line(gate) for gate in result.gates),
    )
    if result.verdict in (None, Verdict.PASS):
        return Tried(plan=plan, made=made, gated=gated)
    against = [gate_line(gate) for gate in result.gates if gate.verdict is not Verdict.PASS]
    doubt = "" if result.verdict is Verdict.FAIL else "these sentences do not tell: "
    return Tried(plan=plan, made=made, gated=gated, reason=doubt + "; ".join(against or result.notes))


def _raced(
    tried: Sequence[Tried],
    inputs: SearchInputs,
    workshop: Workshop,
    ledger: Ledger,
    tell: Tell,
    clock: Callable[[], float],
) -> list[Tried]:
    """Measure those that passed and are not emulated, all in the same rounds."""
    runners = [(one.plan, one.made) for one in tried if one.passed and one.made and not one.plan.emulated]
    if len(runners) < 2:
        return list(tried)
    key = digest_of(inputs, [(plan, made.digest) for plan, made in runners])
    found = ledger.find("speed", key, list[list[float]])
    if found is None or [len(mine) for mine in found[0]] != [inputs.rounds] * len(runners):
        began = clock()
        rates = workshop.race(runners, inputs.rounds, tell)
        ledger.keep("speed", key, rates, clock() - began)
    else:
        rates = found[0]
    measured = {plan.name: tuple(mine) for (plan, _), mine in zip(runners, rates, strict=True)}
    return [_with_speed(one, measured) for one in tried]


def _with_speed(one: Tried, measured: dict[str, tuple[float, ...]]) -> Tried:
    rates = measured.get(one.plan.name)
    if rates is None:
        return one
    original = measured.get(ORIGINAL)
    beside = ratio_of(rates, original) if original is not None and one.plan.name != ORIGINAL else None
    return msgspec.structs.replace(one, rates=rates, rate=rate_of(rates), beside_original=beside)


def choose(tried: Sequence[Tried], notes: Sequence[str] = ()) -> Found:
    """Take the fastest plan that passes; of those that are about as fast, the one with the better quality."""
    passed = [one for one in tried if one.passed]
    emulated = [one for one in passed if one.plan.emulated and one.made]
    smallest = min(emulated, key=_bytes, default=None)
    best = max((one for one in passed if not one.plan.emulated), key=_speed, default=None)
    if best is None:
        why = "no plan that can serve here passes"
        choice = None
    else:
        equals = [one for one in passed if not one.plan.emulated and not _slower(one, best)]
        chosen = min(equals, key=lambda one: (-_quality(one)[0], -_quality(one)[1], _bytes(one)))
        choice, why = chosen.plan.name, _why(chosen, equals, passed)
    return Found(
        choice=choice,
        why=why,
        tried=tuple(tried),
        notes=tuple(notes),
        for_accelerator=smallest.plan.name if smallest else None,
    )


def _slower(one: Tried, best: Tried) -> bool:
    """Whether one is slower than the best, surely."""
    if one is best or not one.rates or not best.rates:
        return False
    return ratio_of(one.rates, best.rates).high < 1.0


def _why(chosen: Tried, equals: Sequence[Tried], passed: Sequence[Tried]) -> str:
    if len(equals) > 1:
        others = ", ".join(one.plan.name for one in equals if one is not chosen)
        return (
            f"no slower than {others} as far as the measurements tell, and of these the one with the best quality "
            "(agreement, then GLEU, then the fewer bytes)"
        )
    if len(passed) == 1:
        return "the only plan that passes"
    return "the fastest plan that passes"


def _is_there(made: Made | None) -> bool:
    return made is None or (Path(made.directory) / "config.json").is_file()


def _outcome(tried: Tried) -> str:
    return f"out, {tried.reason}" if tried.reason else "passes"


def _speed(one: Tried) -> float:
    return one.rate.value if one.rate else 0.0


def _bytes(one: Tried) -> int:
    return one.made.bytes if one.made else 0


def _quality(one: Tried) -> tuple[float, float]:
    """Agreement and GLEU, no finer than they mean anything."""
    assert one.gated is not None
    return round(one.gated.agreement, 3), round(one.gated.gleu, 1)
