"""The search for a precision: what is out, what is chosen, and what is not done twice."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from copydesk.cli.onboarding.ledger import Ledger, LedgerError
from copydesk.cli.onboarding.precision import Plan, named
from copydesk.cli.onboarding.search import Found, Made, PlanFailedError, Tell, choose, search
from copydesk.cli.onboarding.search_table import table
from copydesk.cli.onboarding.speed import rate_of, ratio_of
from copydesk.evaluation import EvaluationResult
from tests.unit.onboarding.found_things import CHOICE, DIGEST, INPUTS, evaluated, tried

ORIGINAL, INT8 = CHOICE.plans
FP8 = named("fp8", "float32", accelerated=False)
FP8_KEPT = named("fp8-keep-mlp", "float32", accelerated=False)


class Bench:
    """A workshop in which `worse` plans lose, `impossible` ones cannot be made, and all have their speed."""

    def __init__(self, folder: Path, worse: Sequence[str] = (), impossible: Sequence[str] = ()) -> None:
        self.folder = folder
        self.worse = worse
        self.impossible = impossible
        self.speeds = {"original": 10.0, "int8": 30.0}
        self.done: list[str] = []

    def make(self, plan: Plan, tell: Tell) -> Made:
        self.done.append(f"make {plan.name}")
        if plan.name in self.impossible:
            raise PlanFailedError("it is quantised already")
        directory = self.folder / plan.name
        directory.mkdir(exist_ok=True)
        (directory / "config.json").write_text("{}")
        return Made(directory=str(directory), digest=DIGEST, bytes=100)

    def evaluate(self, plan: Plan, made: Made, tell: Tell) -> EvaluationResult:
        self.done.append(f"evaluate {plan.name}")
        return evaluated(worse=plan.name in self.worse, alone=plan.name == "original")

    def race(self, entries: Sequence[tuple[Plan, Made]], rounds: int, tell: Tell) -> list[list[float]]:
        self.done.append("race " + " ".join(plan.name for plan, _ in entries))
        return [[self.speeds[plan.name] * (1 + 0.01 * number) for number in range(rounds)] for plan, _ in entries]


def searched(bench: Bench, ledger: Ledger, plans: Sequence[Plan] = CHOICE.plans) -> Found:
    return search(plans, INPUTS, bench, ledger, lambda _: None)


def test_the_fastest_that_passes_is_chosen(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    found = searched(bench, Ledger(tmp_path / "search.json"))
    assert (found.choice, found.why) == ("int8", "the fastest plan that passes")
    chosen = found.chosen
    assert chosen is not None
    assert chosen.beside_original is not None
    assert chosen.beside_original.value == pytest.approx(3.0)
    assert bench.done[-1] == "race original int8"
    shown = table(found, "copydesk model onboard default").splitlines()
    assert shown[-2:] == [f"files:  {tmp_path / 'int8'}", "next:   copydesk model onboard default --plan int8"]


def test_one_that_loses_too_much_is_out_and_is_not_timed(tmp_path: Path) -> None:
    bench = Bench(tmp_path, worse=["int8"])
    found = searched(bench, Ledger(tmp_path / "search.json"))
    assert found.choice == "original"
    assert "GLEU lost" in found.tried[1].reason
    assert not any(step.startswith("race") for step in bench.done)
    assert "int8: GLEU lost" in table(found)


def test_where_none_passes_each_says_why(tmp_path: Path) -> None:
    bench = Bench(tmp_path, worse=["int8"], impossible=["int8-keep-mlp"])
    plans = [INT8, named("int8-keep-mlp", "float32", accelerated=False)]
    found = searched(bench, Ledger(tmp_path / "search.json"), plans)
    assert found.choice is None
    assert all(one.reason for one in found.tried)
    assert found.tried[1].reason == "it is quantised already"
    assert "chosen: none" in table(found)


def test_a_search_that_was_done_asks_nothing_again(tmp_path: Path) -> None:
    first = searched(Bench(tmp_path), Ledger(tmp_path / "search.json"))
    again = Bench(tmp_path)
    assert searched(again, Ledger(tmp_path / "search.json")) == first
    assert again.done == []


def test_a_search_that_was_cut_short_goes_on_where_it_was(tmp_path: Path) -> None:
    class Killed(Bench):
        def evaluate(self, plan: Plan, made: Made, tell: Tell) -> EvaluationResult:
            if plan.name == "int8":
                raise KeyboardInterrupt
            return super().evaluate(plan, made, tell)

    with pytest.raises(KeyboardInterrupt):
        searched(Killed(tmp_path), Ledger(tmp_path / "search.json"))
    bench = Bench(tmp_path)
    assert searched(bench, Ledger(tmp_path / "search.json")).choice == "int8"
    assert bench.done == ["make int8", "evaluate int8", "race original int8"]


@pytest.mark.parametrize("changed", [{"model": "cd" * 32}, {"data": "others"}, {"margins": {"gleu": 0.5}}])
def test_other_weights_data_or_margins_begin_anew(tmp_path: Path, changed: dict[str, object]) -> None:
    searched(Bench(tmp_path), Ledger(tmp_path / "search.json"))
    bench = Bench(tmp_path)
    inputs = msgspec.structs.replace(INPUTS, **changed)
    search(CHOICE.plans, inputs, bench, Ledger(tmp_path / "search.json"), lambda _: None)
    assert "evaluate int8" in bench.done


def test_a_quantised_model_that_was_removed_is_made_again(tmp_path: Path) -> None:
    searched(Bench(tmp_path), Ledger(tmp_path / "search.json"))
    (tmp_path / "int8" / "config.json").unlink()
    bench = Bench(tmp_path)
    searched(bench, Ledger(tmp_path / "search.json"))
    assert bench.done == ["make int8", "evaluate int8"]


def test_of_those_that_are_about_as_fast_the_better_one_is_taken_and_says_so() -> None:
    original = tried(ORIGINAL, (10.0, 30.0, 20.0))
    found = choose([original, tried(INT8, (12.0, 28.0, 22.0), agreement=0.99)])
    assert found.choice == "original"
    assert "no slower than int8 as far as the measurements tell" in found.why


def test_what_is_emulated_never_serves_here_and_the_smallest_is_named() -> None:
    kept = tried(FP8_KEPT, size=80)
    found = choose([tried(ORIGINAL, size=100), tried(FP8, size=50, reason="GLEU lost"), kept])
    assert (found.choice, found.for_accelerator) == ("original", "fp8-keep-mlp")
    alone = choose([kept])
    assert (alone.choice, alone.for_accelerator) == (None, "fp8-keep-mlp")


def test_a_slow_round_falls_on_all_alike() -> None:
    ratio = ratio_of((30.0, 3.0, 33.0), (10.0, 1.0, 11.0))
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((3.0, 3.0, 3.0))
    assert rate_of((30.0, 3.0, 33.0)).low < 3.0
    assert not ratio_of((1.0, 3.0), (2.0, 2.0)).told


def test_a_full_disk_is_told_and_is_nobodys_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("copydesk.cli.onboarding.ledger.replace_file", full)
    with pytest.raises(LedgerError, match="No space left on device") as caught:
        searched(Bench(tmp_path), Ledger(tmp_path / "search.json"))
    assert caught.value.exit_code == 1


def test_a_file_of_something_else_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "search.json"
    path.write_text("my notes")
    with pytest.raises(LedgerError, match="remove it") as caught:
        Ledger(path)
    assert caught.value.exit_code == 2
    assert path.read_text() == "my notes"


def test_a_file_that_nests_for_ever_is_none_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "search.json"
    path.write_text('{"version": 1, "steps": {"speed": {"inputs": "", "seconds": 1, "result": ' + "[" * 100_000)
    with pytest.raises(LedgerError, match="none of this command's files"):
        Ledger(path)


def test_speeds_that_were_edited_are_measured_again(tmp_path: Path) -> None:
    bench, path = Bench(tmp_path), tmp_path / "search.json"
    searched(bench, Ledger(path))
    content = json.loads(path.read_text())
    content["steps"]["speed"]["result"] = [[1.0]]
    path.write_text(json.dumps(content))
    bench.done.clear()
    assert searched(bench, Ledger(path)).choice == "int8"
    assert bench.done == ["race original int8"]
