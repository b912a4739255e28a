"""The simulated fleet: traces from files, a second of flow, and how policies do on short traces."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from copydesk.autoscaler import Limits
from copydesk.cli.main import app
from copydesk.simulator.builtin import BUILT_IN
from copydesk.simulator.clairvoyant import plan
from copydesk.simulator.contest import CLAIRVOYANT, OURS, RIVALS, Setting, contest
from copydesk.simulator.fluid import Fluid
from copydesk.simulator.profile import ASSUMED_POD, Profile
from copydesk.simulator.trace import TraceError
from copydesk.simulator.trace_file import read_trace

POD = Profile.of(ASSUMED_POD)
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
BURSTGPT = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"


@pytest.mark.parametrize("name", ["burst", "step", "flash"])
def test_no_rival_has_fewer_seconds_of_violation_and_the_clairvoyant_has_none(name: str) -> None:
    found, timelines = contest(BUILT_IN[name](), POD, ("m", "h"), Setting(), lambda _: None)
    assert found.violations_to_best_rival <= 0
    assert found.policies[CLAIRVOYANT].slo_violation_seconds == 0
    assert found.policies[CLAIRVOYANT].pod_hours == min(one.pod_hours for one in found.policies.values())
    assert set(timelines) == {OURS, CLAIRVOYANT, *RIVALS}


def test_what_comes_is_served_waits_or_is_refused() -> None:
    fluid = Fluid(POD, queue=500.0)
    waiting = 0.0
    for coming in (0.0, 1000.0, 3000.0, 9000.0, 0.0, 0.0):
        flow = fluid.step(coming, 2.0)
        assert waiting + coming == pytest.approx(flow.served + flow.shed + flow.queued)
        assert flow.in_flight == pytest.approx(flow.served * flow.service_s)
        waiting = flow.queued
    assert waiting == 0.0


def test_the_clairvoyant_keeps_a_pod_over_a_gap_that_is_shorter_than_a_start() -> None:
    rates = np.array([1000.0] * 100 + [3000.0] * 50 + [1000.0] * 20 + [3000.0] * 50 + [1000.0] * 200)
    working, paid, moves = plan(rates, POD, Limits(), 40.0)
    assert working[160] == 3
    assert working[300] == 1
    assert paid[60] == 3
    assert moves == 2


def write(folder: Path, text: str) -> Path:
    path = folder / "trace.csv"
    path.write_text(text)
    return path


def test_azure_and_burstgpt_files_are_read(tmp_path: Path) -> None:
    azure = AZURE + "".join(f"2023-11-16 18:{m:02}:03.9799600,4808,10\n" for m in range(3))
    assert read_trace(write(tmp_path, azure)).rates.sum() == 3
    later = AZURE + "".join(f"2024-05-10 00:{m:02}:00.009930+00:00,2162,5\n" for m in range(3))
    assert len(read_trace(write(tmp_path, later)).rates) == 121
    burst = BURSTGPT + "5,ChatGPT,472,18,490,Conversation log\n70,GPT-4,10,0,10,API log\n"
    assert read_trace(write(tmp_path, burst)).rates.sum() == 2


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        (BURSTGPT + "5,x,1,1,2,y\n4,x,1,1,2,y\n", 3, "backwards"),
        (BURSTGPT + "5,x,1,1,2,y\n5000,x,1,1,2,y\n", 3, "hole"),
        (BURSTGPT + "soon,x,1,1,2,y\n", 2, "no time"),
        ("time,rate\n0,5\n60,5\n180,5\n", 4, "hole"),
        ("time,rate\n0,5\n60,5\n50,5\n", 4, "backwards"),
        ("when,what\n0,5\n", 1, "no column"),
        (AZURE, 0, "no request"),
    ],
)
def test_what_cannot_be_replayed_is_refused(tmp_path: Path, text: str, line: int, reason: str) -> None:
    with pytest.raises(TraceError, match=reason) as caught:
        read_trace(write(tmp_path, text))
    assert caught.value.line == line


def test_the_command_prints_one_object_with_all_policies(tmp_path: Path) -> None:
    drawn = tmp_path / "flash.svg"
    result = CliRunner().invoke(app, ["simulate", "fleet", "--trace", "flash", "--json", "--picture", str(drawn)])
    assert result.exit_code == 0
    policies = json.loads(result.stdout)["policies"]
    assert set(policies) == {OURS, CLAIRVOYANT, *RIVALS}
    assert {"slo_violation_seconds", "pod_hours", "moves", "p99_ms"} <= set(policies[OURS])
    assert drawn.read_text().startswith("<svg")


@pytest.mark.parametrize(
    "arguments",
    [["--trace", "nope"], ["--min-pods", "9", "--max-pods", "3"], ["--hardware", "H100"], ["--max-pods", "2"]],
)
def test_what_cannot_be_simulated_ends_with_code_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, ["simulate", "fleet", *arguments]).exit_code == 2
