"""The stages of onboarding, one after the other: what each takes, what is kept of it, and what it may end with.

Nothing here runs a model: that is behind `Tools`. A stage whose inputs are those of a run before is not repeated.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from copydesk.cli.onboarding.ledger import Ledger, digest_of
from copydesk.cli.onboarding.outlook import Outlook, duration
from copydesk.cli.onboarding.precision import Choice, Plan
from copydesk.cli.onboarding.search import Found, Made, SearchInputs, Tell
from copydesk.cli.onboarding.tuning import Setting, Tuned
from copydesk.common.errors import CopydeskError
from copydesk.evaluation import EvaluationResult, Verdict
from copydesk.evaluation.wording import gate_line

T = TypeVar("T")
CHECK, SEARCH, QUANTISE, GATE, TUNE, CAPACITY, COLD_START, PROFILE = (
    "check",
    "search",
    "quantise",
    "gate",
    "tune",
    "capacity",
    "cold-start",
    "profile",
)
STAGES = (CHECK, SEARCH, QUANTISE, GATE, TUNE, CAPACITY, COLD_START, PROFILE)


class StageFailedError(CopydeskError):
    """A stage whose outcome is that the model is not taken: which one, why, and what to change."""

    exit_code = 1

    def __init__(self, stage: str, reason: str, advice: str) -> None:
        self.stage = stage
        self.reason = reason
        self.advice = advice
        super().__init__(f"{stage}: {reason}")


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What the check found: warnings, and what the model is. Errors end the stage."""

    architecture: str
    parameters: int
    bytes: int
    template: str
    template_digest: str
    warnings: tuple[str, ...] = ()


class Certified(msgspec.Struct, frozen=True, kw_only=True):
    """A capacity certificate: its file, and the SHA-256 of that; `rough` if it was made in a hurry.

    A pod holds `rate` requests a second, with `concurrency` in flight.
    """

    file: str
    digest: str
    rough: bool
    rate: float
    concurrency: float


class ColdStart(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds from the start of a pod's process until it serves, start by start."""

    seconds: tuple[float, ...]

    @property
    def ninth(self) -> float:
        """What nine of ten starts take at the most; of fewer than ten, the longest."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, -(-9 * len(ordered) // 10) - 1)]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be onboarded. `inputs` are what a search depends on; `plan` "" searches.

    `quick` shortens measurements; `capacity` says whether there is a certificate at all.
    """

    name: str
    inputs: SearchInputs
    choice: Choice
    plan: str = ""
    quick: bool = False
    capacity: bool = True
    slo_ms: float = 1000.0
    max_rate: float | None = None


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """How the model is served as far as it is decided: its plan, its files, and the engine's settings."""

    plan: Plan
    made: Made
    setting: Setting


class Onboarded(msgspec.Struct, frozen=True, kw_only=True):
    """All that was found out."""

    checked: Checked
    found: Found | None
    serving: Serving
    quality: EvaluationResult
    tuned: Tuned
    certified: Certified | None
    cold_start: ColdStart


class Tools(Protocol):
    """What the stages do; each may raise `StageFailedError`, and other errors of Copydesk."""

    def check(self) -> Checked:
        """Look at the model and read its weights."""
        ...

    def search(self) -> Found:
        """Find the precision."""
        ...

    def install(self, plan: Plan) -> Made:
        """Put the model as the plan has it where the fleet will find it."""
        ...

    def gate(self, plan: Plan, made: Made) -> EvaluationResult:
        """Hold it against the original."""
        ...

    def tune(self, plan: Plan, made: Made) -> Tuned:
        """Find the engine's settings."""
        ...

    def certify(self, serving: Serving) -> Certified:
        """Measure what a pod holds."""
        ...

    def cold_start(self, serving: Serving) -> ColdStart:
        """Start pods."""
        ...

    def intact(self, made: Made) -> bool:
        """Whether the model is there as it was."""
        ...

    def intact_certificate(self, certified: Certified) -> bool:
        """Whether the certificate is there as it was."""
        ...


class Progress:
    """Runs stages: tells each in a line, keeps what came of it, and takes from before what still holds."""

    def __init__(
        self, ledger: Ledger, tell: Tell, outlook: Outlook, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ledger = ledger
        self._tell = tell
        self._outlook = outlook
        self._clock = clock

    def run(
        self,
        stage: str,
        inputs: Any,
        work: Callable[[], T],
        type_: type[T],
        summary: Callable[[T], str],
        intact: Callable[[T], bool] = lambda _: True,
    ) -> T:
        """Return what a stage came to, from before if its inputs are the same and it is `intact`."""
        key = digest_of(inputs)
        place = f"[{STAGES.index(stage) + 1}/{len(STAGES)}] {stage}"
        kept = self._ledger.find(stage, key, type_)
        if kept is not None and intact(kept[0]):
            self._outlook.skipped(stage)
            self._tell(f"{place}: {summary(kept[0])} (kept from before)")
            return kept[0]
        self._tell(f"{place}: begins, about {duration(self._outlook.expected(stage))}")
        began = self._clock()
        result = work()
        seconds = self._clock() - began
        self._ledger.keep(stage, key, result, seconds)
        self._outlook.done(stage, seconds)
        left = self._outlook.left()
        rest = f"; about {duration(left)} left" if left else ""
        self._tell(f"{place}: {summary(result)} ({duration(seconds)}{rest})")
        return result


def onboard(job: Job, tools: Tools, progress: Progress) -> Onboarded:
    """Run all stages up to the profile, which is made of what they return.

    Raises:
        StageFailedError: The model is not taken.
    """
    inputs = job.inputs
    checked = progress.run(CHECK, (inputs.model, inputs.tool), tools.check, Checked, _checked)
    found, plan = _plan(job, tools, progress)
    made = progress.run(
        QUANTISE,
        (inputs.model, plan, inputs.tool),
        lambda: tools.install(plan),
        Made,
        lambda made: _installed(plan, made),
        tools.intact,
    )
    judged = (made.digest, plan.dtype, inputs.model, inputs.exact, inputs.data, inputs.margins, inputs.tool)
    quality = progress.run(GATE, judged, lambda: _gated(tools, plan, made), EvaluationResult, _quality)
    measured_on = (made.digest, plan.dtype, inputs.hardware, job.quick, inputs.tool)
    tuned = progress.run(TUNE, (measured_on, inputs.data), lambda: tools.tune(plan, made), Tuned, _tuned)
    serving = Serving(plan=plan, made=made, setting=tuned.setting)
    served = (*measured_on, tuned.setting, job.name)
    certified = None
    if job.capacity:
        certified = progress.run(
            CAPACITY,
            (served, inputs.data, job.slo_ms, job.max_rate),
            lambda: tools.certify(serving),
            Certified,
            _capacity,
            tools.intact_certificate,
        )
    cold = progress.run(COLD_START, served, lambda: tools.cold_start(serving), ColdStart, _cold, _started)
    return Onboarded(
        checked=checked,
        found=found,
        serving=serving,
        quality=quality,
        tuned=tuned,
        certified=certified,
        cold_start=cold,
    )


def _plan(job: Job, tools: Tools, progress: Progress) -> tuple[Found | None, Plan]:
    if job.plan:
        return None, next(plan for plan in job.choice.plans if plan.name == job.plan)
    found = progress.run(SEARCH, (job.inputs, job.choice), lambda: _searched(tools), Found, _choice, _has_choice)
    assert found.chosen is not None
    return found, found.chosen.plan


def _searched(tools: Tools) -> Found:
    found = tools.search()
    if found.choice is None:
        reasons = "; ".join(f"{one.plan.name}: {one.reason}" for one in found.tried if one.reason)
        advice = "allow more loss (--margin), give more sentences (--data), or try other plans (--plans)"
        raise StageFailedError(SEARCH, f"no plan passes: {reasons}", advice)
    return found


def _gated(tools: Tools, plan: Plan, made: Made) -> EvaluationResult:
    """A plan that the user chose may fail here; one that a search chose has passed on the same sentences."""
    result = tools.gate(plan, made)
    if result.verdict in (None, Verdict.PASS):
        return result
    lines = "; ".join(gate_line(gate) for gate in result.gates if gate.verdict is not Verdict.PASS)
    if result.verdict is Verdict.FAIL:
        advice = "choose a plan that keeps more (copydesk model search), or allow more loss (--margin)"
        raise StageFailedError(GATE, f"{plan.name} loses more than it may: {lines}", advice)
    advice = "give more sentences (--data), or allow more loss (--margin)"
    raise StageFailedError(GATE, f"the sentences do not tell whether {plan.name} may serve: {lines}", advice)


def forgotten_from(stage: str) -> set[str]:
    """Return the stages that are to be done again when one is, and the steps of a search among them."""
    again = set(STAGES[STAGES.index(stage) :])
    return again | {"plan", "speed"} if SEARCH in again else again


def certificate_path(out: Path) -> Path:
    """Where the certificate is written."""
    return out / "capacity.json"


def _checked(checked: Checked) -> str:
    warned = f", {len(checked.warnings)} to mind" if checked.warnings else ""
    return f"{checked.architecture}, {checked.parameters / 1e6:,.1f} million parameters, sound{warned}"


def _choice(found: Found) -> str:
    return f"{found.choice}, {found.why}"


def _has_choice(found: Found) -> bool:
    return found.chosen is not None


def _started(cold: ColdStart) -> bool:
    return bool(cold.seconds)


def _installed(plan: Plan, made: Made) -> str:
    what = plan.name if plan.quantised else "the original's files serve"
    return f"{what}, {made.bytes / 2**20:,.1f} MiB in {made.directory}"


def _quality(result: EvaluationResult) -> str:
    if result.verdict is None:
        return f"GLEU {result.gleu:.2f}; it is the original itself, so that nothing can be lost"
    same = f"{100 * (1.0 if result.agreement is None else result.agreement):.2f} % same words"
    return f"{result.verdict}, GLEU {result.gleu:.2f} against {result.gleu_reference:.2f}, {same}"


def _tuned(tuned: Tuned) -> str:
    return f"{tuned.setting.name}, {tuned.why}"


def _capacity(certified: Certified) -> str:
    roughly = "roughly " if certified.rough else ""
    return (
        f"a pod holds {roughly}{certified.rate:.3g} requests/s with {certified.concurrency:.3g} in flight, "
        f"see {certified.file}"
    )


def _cold(cold: ColdStart) -> str:
    starts = "1 start" if len(cold.seconds) == 1 else f"{len(cold.seconds)} starts"
    return f"a new pod serves after {cold.ninth:.1f} s, of {starts}"
