"""What failed once is tried again by the next run, and nothing that failed is taken from before."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import cast

import pytest

from copydesk.cli.bench.machine import Machine
from copydesk.cli.commands import model_search
from copydesk.cli.onboarding.ledger import Ledger
from copydesk.cli.onboarding.precision import Plan
from copydesk.cli.onboarding.real_tools import RealTools, in_vain
from copydesk.cli.onboarding.search import Made, PlanFailedError, Tell, search
from copydesk.cli.onboarding.stages import Serving, StageFailedError
from copydesk.cli.onboarding.subject import Ground, Subject
from copydesk.cli.onboarding.tuning import DEFAULT, Measured
from copydesk.cli.onboarding.workshop import RealWorkshop
from copydesk.evaluation import Corpus, EvaluationResult, Options
from copydesk.inference.inspection import ModelReport
from copydesk.loadtest.certificate import Hardware
from copydesk.loadtest.ground import Scouted, Timing
from copydesk.loadtest.record import Record, write_record
from copydesk.loadtest.record import Subject as Measurand
from copydesk.loadtest.search import Measure, Scope, next_step
from copydesk.loadtest.trial import Trial
from copydesk.loadtest.verdict import Rules
from tests.unit.onboarding.found_things import CHOICE, DIGEST, INPUTS, JOB
from tests.unit.onboarding.test_plan_search import Bench

MADE = Made(directory="/nowhere", digest=DIGEST, bytes=10)
PLAN = CHOICE.plans[0]
MACHINE = Machine(processor="Xeon", cores=1, instructions=(), memory_gib=1.0, system="", python="")
GROUND = Ground(Corpus("none", ()), "data", MACHINE, "cpu", "Xeon")


def tools(folder: Path) -> RealTools:
    return RealTools(
        job=JOB,
        subject=cast(Subject, None),
        ground=GROUND,
        options=Options(),
        ledger=Ledger(folder / "onboarding.json"),
        out=folder,
        tell=lambda _: None,
        rounds=2,
        sentences=2,
        tool="copydesk 1",
        now=lambda: datetime.datetime(2026, 11, 30, tzinfo=datetime.UTC),
    )


def test_a_setting_that_did_not_run_is_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = False

    def measure(self: RealTools, serving: Serving, texts: list[str], seconds: float) -> Measured:
        if memory:
            return Measured(setting=serving.setting, rates=(1.0, 1.0, 1.0))
        return Measured(setting=serving.setting, failure="no memory")

    monkeypatch.setattr(RealTools, "_measure", measure)
    with pytest.raises(StageFailedError, match="no fleet of it runs here: no memory"):
        tools(tmp_path).tune(PLAN, MADE)
    memory = True
    assert tools(tmp_path).tune(PLAN, MADE).setting == DEFAULT


def test_a_plan_that_could_not_be_tried_is_tried_again(tmp_path: Path) -> None:
    class Crowded(Bench):
        def evaluate(self, plan: Plan, made: Made, tell: Tell) -> EvaluationResult:
            raise PlanFailedError("no memory")

    path = tmp_path / "search.json"
    found = search(CHOICE.plans, INPUTS, Crowded(tmp_path), Ledger(path), lambda _: None)
    assert [one.reason for one in found.tried] == ["no memory", "no memory"]
    again = search(CHOICE.plans, INPUTS, Bench(tmp_path), Ledger(path), lambda _: None)
    assert again.choice == "int8"


def record(trials: tuple[Trial, ...] = ()) -> Record:
    return Record(
        subject=Measurand(
            url="http://here", model="m", model_digest=DIGEST, pods=1, config={}, hardware=Hardware(name="Xeon")
        ),
        rules=Rules(),
        timing=Timing(seconds=1.0, arrivals=500, warm_s=1.0),
        scope=Scope(start=10.0, floor=5.0, processes=1),
        scouted=Scouted(best_ms=5.0, alone_ms=5.0, batch_rate=100.0),
        seed=1,
        trials=trials,
    )


def late(step: Measure) -> Trial:
    """A trial whose requests could not be sent in time."""
    return Trial(
        rate=step.rate,
        length=step.length,
        processes=step.processes,
        arrivals=500,
        completed=500,
        slow=0,
        shed=0,
        errors=0,
        seconds=50.0,
        sent_rate=step.rate,
        p50_ms=5.0,
        p99_ms=9.0,
        max_ms=9.0,
        late_p99_ms=500.0,
        concurrency=1.0,
        in_flight=(1.0,) * 40,
    )


def test_a_search_for_a_capacity_that_found_none_is_not_gone_on_from(tmp_path: Path) -> None:
    path = tmp_path / "trials.json"
    assert not in_vain(path)
    so_far = record()
    write_record(so_far, path)
    assert not in_vain(path)
    while isinstance(step := next_step(so_far.trials, so_far.rules, so_far.scope), Measure):
        so_far = so_far.added(late(step))
    write_record(so_far, path)
    assert in_vain(path)
    path.write_text("cut sho")
    assert in_vain(path)


def test_answers_of_another_version_are_not_taken_for_those_of_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Noting(RealWorkshop):
        def __init__(self, *_: object, circumstances: str, **__: object) -> None:
            asked.append(circumstances)

    monkeypatch.setattr(model_search, "RealWorkshop", Noting)
    monkeypatch.setattr(Ground, "exact", lambda *_: "float32")
    subject = Subject(Path("/nowhere"), cast(ModelReport, None), DIGEST)
    for version in ("copydesk 1", "copydesk 2"):
        monkeypatch.setattr(model_search, "tool", lambda version=version: version)
        model_search.workshop_for(subject, GROUND, Options(), 2)
    assert asked == ["Xeon cpu copydesk 1", "Xeon cpu copydesk 2"]
