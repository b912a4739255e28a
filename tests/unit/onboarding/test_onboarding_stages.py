"""The stages of onboarding: their order, what is kept, what is done again, and how it ends badly."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from copydesk.cli.onboarding.ledger import Ledger, LedgerError
from copydesk.cli.onboarding.outlook import Outlook, duration, expectations
from copydesk.cli.onboarding.precision import Plan
from copydesk.cli.onboarding.search import Found, Made, choose
from copydesk.cli.onboarding.stages import (
    STAGES,
    Certified,
    Checked,
    ColdStart,
    Job,
    Onboarded,
    Progress,
    Serving,
    StageFailedError,
    forgotten_from,
    onboard,
)
from copydesk.cli.onboarding.tuning import DEFAULT, Tuned
from copydesk.evaluation import EvaluationResult
from tests.unit.onboarding.found_things import CHOICE, DIGEST, INPUTS, JOB, evaluated, tried

ORIGINAL, INT8 = CHOICE.plans
ALL = ["check", "search", "install", "gate", "tune", "certify", "cold start"]


class StandIn:
    """Does every stage at once, and says which; `dies_at` is where the process is killed."""

    def __init__(
        self, dies_at: str = "", *, worse: bool = False, count: int = 120, none_passes: bool = False
    ) -> None:
        self.done: list[str] = []
        self.dies_at = dies_at
        self.worse = worse
        self.count = count
        self.none_passes = none_passes
        self.certificate_is_there = True

    def _do(self, stage: str) -> None:
        if stage == self.dies_at:
            raise KeyboardInterrupt
        self.done.append(stage)

    def check(self) -> Checked:
        self._do("check")
        return Checked(
            architecture="LlamaForCausalLM", parameters=10, bytes=40, template="t.jinja", template_digest=DIGEST
        )

    def search(self) -> Found:
        self._do("search")
        reason = "GLEU lost: 3 points" if self.none_passes else ""
        return choose([tried(ORIGINAL, (1.0, 1.1), reason=reason), tried(INT8, (3.0, 3.3), reason=reason)])

    def install(self, plan: Plan) -> Made:
        self._do("install")
        return Made(directory="/nowhere", digest=DIGEST, bytes=20)

    def gate(self, plan: Plan, made: Made) -> EvaluationResult:
        self._do("gate")
        return evaluated(worse=self.worse, count=self.count)

    def tune(self, plan: Plan, made: Made) -> Tuned:
        self._do("tune")
        return Tuned(setting=DEFAULT, why="nothing is surely faster", measured=())

    def certify(self, serving: Serving) -> Certified:
        self._do("certify")
        return Certified(file="/nowhere/capacity.json", digest=DIGEST, rough=True, rate=20.0, concurrency=8.0)

    def cold_start(self, serving: Serving) -> ColdStart:
        self._do("cold start")
        return ColdStart(seconds=(3.0, 2.0))

    def intact(self, made: Made) -> bool:
        return True

    def intact_certificate(self, certified: Certified) -> bool:
        return self.certificate_is_there


def progress(path: Path, told: list[str] | None = None) -> Progress:
    ticks = itertools.count(0.0, 2.0)
    clock: Callable[[], float] = lambda: next(ticks)  # noqa: E731
    lines = told if told is not None else []
    return Progress(Ledger(path), lines.append, Outlook(dict.fromkeys(STAGES, 60.0)), clock)


def run(tools: StandIn, path: Path, job: Job = JOB, told: list[str] | None = None) -> Onboarded:
    return onboard(job, tools, progress(path, told))


def test_all_stages_come_in_their_order_and_each_is_told_with_the_time_left(tmp_path: Path) -> None:
    tools, told = StandIn(), list[str]()
    onboarded = run(tools, tmp_path / "onboarding.json", told=told)
    assert tools.done == ALL
    assert onboarded.serving.plan == INT8
    assert onboarded.cold_start.ninth == 3.0
    assert [line.split(":")[0] for line in told[::2]] == [
        f"[{number}/8] {stage}" for number, stage in enumerate(STAGES[:-1], 1)
    ]
    assert all("left)" in line for line in told[1::2])
    assert any("a pod holds roughly 20 requests/s with 8 in flight, see /nowhere" in line for line in told)


@pytest.mark.parametrize("place", range(len(ALL)))
def test_a_run_that_was_killed_goes_on_at_the_stage_that_was_not_done(tmp_path: Path, place: int) -> None:
    path = tmp_path / "onboarding.json"
    with pytest.raises(KeyboardInterrupt):
        run(StandIn(dies_at=ALL[place]), path)
    tools, told = StandIn(), list[str]()
    run(tools, path, told=told)
    assert tools.done == ALL[place:]
    assert sum("kept from before" in line for line in told) == place


@pytest.mark.parametrize(
    ("changed", "again"),
    [
        ({"model": "cd" * 32}, ["check", "search", "install", "gate"]),
        ({"tool": "copydesk 2"}, ALL),
        ({"data": "others"}, ["search", "gate", "tune", "certify"]),
        ({"margins": {"gleu": 2.0}}, ["search", "gate"]),
        ({"hardware": "another"}, ["search", "tune", "certify", "cold start"]),
    ],
)
def test_what_depends_on_a_changed_input_is_done_again(
    tmp_path: Path, changed: dict[str, object], again: list[str]
) -> None:
    path = tmp_path / "onboarding.json"
    run(StandIn(), path)
    tools = StandIn()
    run(tools, path, msgspec.structs.replace(JOB, inputs=msgspec.structs.replace(INPUTS, **changed)))
    assert tools.done == again


def test_a_certificate_that_was_changed_or_removed_is_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "onboarding.json"
    run(StandIn(), path)
    tools = StandIn()
    tools.certificate_is_there = False
    run(tools, path)
    assert tools.done == ["certify"]


def test_a_stage_can_be_asked_to_be_done_again_with_all_after_it(tmp_path: Path) -> None:
    path = tmp_path / "onboarding.json"
    run(StandIn(), path)
    Ledger(path).forget(forgotten_from("tune"))
    tools = StandIn()
    run(tools, path)
    assert tools.done == ["tune", "certify", "cold start"]


def test_the_steps_within_a_stage_are_forgotten_with_it(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "onboarding.json")
    for step in ("plan int8", "speed", "tune slots=16 1", "check"):
        ledger.keep(step, "inputs", 1, 0.0)
    ledger.forget(forgotten_from("search"))
    again = Ledger(tmp_path / "onboarding.json")
    assert again.find("check", "inputs", int) == (1, 0.0)
    assert all(again.find(step, "inputs", int) is None for step in ("plan int8", "speed", "tune slots=16 1"))


def test_a_plan_that_was_chosen_by_hand_is_not_searched_for_and_may_fail_its_gate(tmp_path: Path) -> None:
    tools = StandIn(worse=True)
    with pytest.raises(StageFailedError) as caught:
        run(tools, tmp_path / "onboarding.json", msgspec.structs.replace(JOB, plan="int8"))
    assert (caught.value.stage, caught.value.exit_code) == ("gate", 1)
    assert "GLEU lost" in caught.value.reason
    assert "--margin" in caught.value.advice
    assert tools.done == ["check", "install", "gate"]


def test_sentences_that_do_not_tell_are_no_pass(tmp_path: Path) -> None:
    with pytest.raises(StageFailedError, match="do not tell") as caught:
        run(StandIn(count=12), tmp_path / "onboarding.json")
    assert "--data" in caught.value.advice


def test_where_no_plan_passes_each_reason_is_told(tmp_path: Path) -> None:
    with pytest.raises(StageFailedError, match="original: GLEU lost: 3 points; int8: GLEU lost") as caught:
        run(StandIn(none_passes=True), tmp_path / "onboarding.json")
    assert caught.value.stage == "search"


def test_without_a_certificate_nothing_is_measured_for_it(tmp_path: Path) -> None:
    tools = StandIn()
    onboarded = run(tools, tmp_path / "onboarding.json", msgspec.structs.replace(JOB, capacity=False))
    assert onboarded.certified is None
    assert "certify" not in tools.done


def test_a_disk_that_fills_up_ends_it_and_what_was_done_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "onboarding.json"
    with pytest.raises(KeyboardInterrupt):
        run(StandIn(dies_at="tune"), path)

    def full(target: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("copydesk.cli.onboarding.ledger.replace_file", full)
        with pytest.raises(LedgerError, match="No space left on device"):
            run(StandIn(), path)
    tools = StandIn()
    run(tools, path)
    assert tools.done == ["tune", "certify", "cold start"]


def test_expectations_are_set_right_by_what_was_slow() -> None:
    outlook = Outlook({"check": 60.0, "search": 100.0, "gate": 10.0})
    outlook.done("check", 330.0)
    assert outlook.expected("search") == pytest.approx(400.0)
    outlook.skipped("gate")
    assert outlook.left() == pytest.approx(400.0)


def test_more_of_everything_takes_longer_and_less_is_quick() -> None:
    shape = {"weights": 270_000_000, "sentences": 800, "plans": 3, "settings": 7}
    usual = expectations(**shape, searched=True, capacity=True, quick=False)
    assert usual.keys() == set(STAGES)
    quick = expectations(**shape, searched=True, capacity=True, quick=True)
    assert sum(quick.values()) < sum(usual.values())
    assert expectations(**shape, searched=False, capacity=False, quick=True)["capacity"] == 0.0
    assert (duration(0.2), duration(90), duration(150), duration(7500)) == ("1 s", "90 s", "2 min", "2.1 h")
