"""`copydesk model onboard` and `search` with real engines and real fleets over tiny models."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner, Result

from copydesk.cli.commands.capacity import TOO_BUSY
from copydesk.cli.main import app
from copydesk.cli.onboarding.tuning import DEFAULT, Setting
from copydesk.common.cache_folder import cache_folder
from copydesk.common.profile import read_profile
from tests.fixtures.fleet import READY_SECONDS, Fleet
from tests.fixtures.tiny_model import write_tiny_model

PAIRS = "".join(f"She go home {n}.\tShe goes home {n}.\nAll is well {n}.\tAll is well {n}.\n" for n in range(100))


@pytest.fixture(autouse=True)
def as_if_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """What the command sets for a whole process is undone; its cache is a folder of the test."""
    for module in ("model_onboard", "model_search"):
        monkeypatch.setattr(f"copydesk.cli.commands.{module}.configure_logging", lambda *_, **__: None)
    compiled = cache_folder() / "native"  # takes minutes to make on a busy machine, and is the same for all
    compiled.mkdir(parents=True, exist_ok=True)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "native").symlink_to(compiled)
    monkeypatch.setenv("COPYDESK_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("COPYDESK_INFERENCE_THREADS", "1")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path / "letters", always_stops=True)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.tsv"
    path.write_text(PAIRS)
    return path


def command(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["model", *map(str, arguments)])


@pytest.mark.timeout(900)
def test_a_model_ends_as_a_fleet_that_corrects(
    model: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = (DEFAULT, Setting(name="slots=16", slots=16))
    monkeypatch.setattr("copydesk.cli.onboarding.real_tools.settings_to_try", lambda *_, **__: few)
    out = tmp_path / "out"
    options = ("--quick", "--plan", "original-int8", "--max-rate", 40, "--slo-ms", 5000)
    result = command("onboard", model, "--out", out, "--data", data, "--json", *options)
    if result.exit_code == 1 and TOO_BUSY in result.stderr:
        pytest.skip("this machine is too busy for a certificate")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout.splitlines()[-1])
    assert (told["taken"], told["plan"], told["profile"]) == (True, "original-int8", str(out / "profile.yaml"))

    profile = read_profile(out / "profile.yaml")
    assert (profile.model.name, profile.model.directory) == ("letters", str(model))
    assert profile.precision.dtype == "int8"
    assert profile.quality is not None
    assert (profile.quality.verdict, profile.quality.agreement) == ("pass", 1.0)
    assert profile.capacity is not None
    assert profile.capacity.max_rate <= 40
    assert (out / "report.html").read_text().startswith("<!doctype html>")
    assert {path.name for path in out.iterdir()} >= {"quality.html", "capacity.json", "capacity.svg"}

    again = command("onboard", model, "--out", out, "--data", data, *options)
    assert again.exit_code == 0, again.output
    assert again.stderr.count("(kept from before)") == 6
    up(out / "profile.yaml", tmp_path / "fleet")


def up(profile: Path, folder: Path) -> None:
    fleet = Fleet(folder, "--profile", str(profile), "--pods", "1", "--show")
    try:
        corrected = fleet.wait_for("correction", timeout=READY_SECONDS)
        assert corrected["corrected"] == corrected["text"]
    finally:
        assert fleet.stop() == 0


def test_a_search_finds_a_plan_and_takes_it_from_before_the_next_time(model: Path, data: Path) -> None:
    arguments = ("search", model, "--data", data, "--plans", "original,original-int8", "--rounds", 2, "--json")
    first = command(*arguments)
    assert first.exit_code == 0, first.output
    found = json.loads(first.stdout.splitlines()[-1])
    assert found["choice"] in ("original", "original-int8")
    assert [one["gated"]["verdict"] for one in found["tried"]] == ["pass", "pass"]
    again = command(*arguments)
    assert json.loads(again.stdout.splitlines()[-1]) == found
    assert again.stderr.count("(kept)") == 2


def test_references_are_given_as_they_are_to_evaluate(model: Path, tmp_path: Path) -> None:
    for name, text in (("src", "She go {}."), ("ref0", "She goes {}."), ("ref1", "She went {}.")):
        (tmp_path / name).write_text("".join(text.format(n) + "\n" for n in range(60)))
    references = [tmp_path / "ref0", tmp_path / "ref1"]
    line = ("search", model, "--data", tmp_path / "src", "--references", *references, "--plans", "original")
    result = command(*line, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["choice"] == "original"


def test_damaged_weights_are_not_taken_and_the_tensor_is_named(model: Path, data: Path, tmp_path: Path) -> None:
    path = model / "model.safetensors"
    tensors = load_file(path)
    name = "model.layers.1.mlp.up_proj.weight"
    tensors[name] = np.full_like(tensors[name], np.nan)
    save_file(tensors, path, metadata={"format": "pt"})
    result = command("onboard", model, "--out", tmp_path / "out", "--data", data, "--json")
    assert result.exit_code == 1, result.output
    told = json.loads(result.stdout.splitlines()[-1])
    assert (told["taken"], told["stage"]) == (False, "check")
    assert name in told["reason"]
    assert not (tmp_path / "out" / "profile.yaml").exists()


def test_too_few_sentences_tell_nothing_and_it_says_how_many_would(
    model: Path, data: Path, tmp_path: Path
) -> None:
    options = ("--limit", 8, "--plan", "original-int8", "--out", tmp_path / "out")
    result = command("onboard", model, "--data", data, *options)
    assert result.exit_code == 1, result.output
    assert "not taken, at stage gate: the sentences do not tell" in result.stderr
    assert "more than these" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["onboard", "/nowhere/at/all"],
        ["onboard", "{model}", "--data", "/nowhere.tsv"],
        ["onboard", "{model}", "--plan", "fp4"],
        ["onboard", "{model}", "--name", "a model"],
        ["onboard", "{model}", "--restart-from", "lunch"],
        ["onboard", "{model}", "--plan", "int8", "--plans", "int8"],
        ["search", "/nowhere/at/all"],
        ["search", "{model}", "--plans", "fp8-keep-head"],
        ["search", "{model}", "--margin", "beauty=1"],
        ["search", "{model}", "--margin", "much"],
        ["search", "{model}", "--references", "dev.ref0"],
        ["onboard", "{model}", "--data", "dev.src", "dev.ref0"],
    ],
)
def test_what_cannot_be_begun_with_is_bad_input(model: Path, tmp_path: Path, arguments: list[str]) -> None:
    given = [str(model) if argument == "{model}" else argument for argument in arguments]
    out = ["--out", str(tmp_path / "out")] if given[0] == "onboard" else []
    assert command(*given, *out).exit_code == 2


class Onboarding:
    """The command in a process of its own, up to where it says something."""

    def __init__(self, *arguments: object) -> None:
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "copydesk.cli", "model", "onboard", *map(str, arguments)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def kill_at(self, beginning: str) -> None:
        """Kill it once a line begins so; it may take two minutes until then."""
        timer = threading.Timer(120, self.process.kill)
        timer.start()
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip())
            if line.startswith(beginning):
                break
        timer.cancel()
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stderr.close()
        assert self.lines[-1].startswith(beginning), "\n".join(self.lines)


@pytest.mark.timeout(900)
def test_a_run_that_was_killed_goes_on_at_the_first_stage_that_is_not_done(
    model: Path, data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    arguments = (model, "--out", out, "--data", data, "--plan", "original-int8", "--no-capacity")
    Onboarding(*arguments).kill_at("[5/8] tune: begins")
    again = Onboarding(*arguments)
    again.kill_at("[5/8] tune: begins")
    kept = [line.split(":")[0] for line in again.lines if line.endswith("(kept from before)")]
    assert kept == ["[1/8] check", "[3/8] quantise", "[4/8] gate"]

    with (model / "copydesk.json").open("w") as file:
        file.write("{}")  # counts in the digest, as everything does that has a say in the answers
    changed = Onboarding(*arguments)
    changed.kill_at("[4/8] gate: begins")
    assert not any("(kept from before)" in line for line in changed.lines)


@pytest.mark.timeout(900)
def test_a_fleet_ends_with_the_run_that_started_it(model: Path, data: Path, tmp_path: Path) -> None:
    run = Onboarding(model, "--out", tmp_path / "out", "--data", data, "--plan", "original-int8", "--quick")
    family: list[psutil.Process] = []

    def remember() -> None:
        family.extend(psutil.Process(run.process.pid).children(recursive=True))

    assert run.process.stderr is not None
    original = run.process.stderr.readline
    for line in iter(original, ""):
        run.lines.append(line.rstrip())
        if line.startswith("      round 1, default"):  # the next fleet is about to start
            while not any("copydesk.inference" in " ".join(child.cmdline()) for child in family):
                family.clear()
                remember()
            break
    os.kill(run.process.pid, signal.SIGKILL)
    run.process.wait()
    run.process.stderr.close()
    assert family, "\n".join(run.lines)
    _, alive = psutil.wait_procs(family, timeout=90)
    assert not alive
