"""`copydesk model check`: a page for people, an object for programs, an exit code for scripts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from copydesk.cli.commands.model_check import bar, size
from copydesk.cli.main import app
from copydesk.inference.inspection import MemoryReport
from copydesk.inference.quantisation.conversion import quantise_directory
from copydesk.inference.quantisation.plan import PrecisionPlan
from copydesk.inference.quantisation.scheme import Scheme
from tests.fixtures.tiny_model import write_tiny_model


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path / "model")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["model", "check", *map(str, arguments)], env={"COLUMNS": "120"})


def test_a_good_model_has_a_page_and_exit_code_0(model: Path) -> None:
    result = run(model, "--target", "l4-24gb")
    assert result.exit_code == 0
    assert result.stderr == ""
    for words in (
        "LlamaForCausalLM",
        "native  yes",
        "BPE, ",
        "<|im_start|>She go",
        "l4-24gb, 24.0 GiB",
        "slots fit",
    ):
        assert words in result.stdout
    assert result.stdout.rstrip().endswith("It can be used: nothing is wrong with it.")


def test_a_line_that_goes_to_a_file_stays_whole(model: Path) -> None:
    lines = run(model, "--target", "l4-24gb").stdout.splitlines()
    assert sum(line.endswith("slots fit") for line in lines) == 4
    assert all(line == line.rstrip() for line in lines)


def test_what_is_wrong_goes_to_standard_error_with_exit_code_2(model: Path) -> None:
    (model / "chat_template.jinja").unlink()
    (model / "training_args.bin").write_bytes(b"")
    result = run(model)
    assert result.exit_code == 2
    lines = result.stderr.splitlines()
    assert lines[0].startswith("warning: training_args.bin: pickled data is not opened; remove it")
    assert lines[1].startswith("error: the directory has no chat template: add chat_template.jinja")
    assert "It cannot be used as it is: 1 error, 1 warning." in result.stdout


def test_warnings_alone_do_not_fail(model: Path) -> None:
    (model / "training_args.bin").write_bytes(b"")
    assert run(model).exit_code == 0


def test_a_program_gets_one_object(model: Path) -> None:
    content = json.loads(run(model, "--json").stdout)
    assert content["usable"] is True
    assert content["problems"] == []
    (model / "model.safetensors").unlink()
    result = run(model, "--json")
    assert result.exit_code == 2
    content = json.loads(result.stdout)
    assert content["usable"] is False
    assert content["problems"][0] == {
        "severity": "error",
        "about": "model.safetensors",
        "what": "there is no such file, and no index of shards",
        "advice": "get the weights again",
    }


def test_a_long_list_of_what_was_kept_is_cut_short_for_people_alone(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "quantised"
    plan = PrecisionPlan(Scheme.FP8, per_tensor=False, keep=("attention",))
    quantise_directory(model, out, plan, lambda _stage, _share: None, measure=False)
    kept = json.loads(run(out, "--json").stdout)["quantisation"]["ignore"]
    page = " ".join(run(out).stdout.split())
    assert len(kept) > 5
    assert f"kept: {', '.join(kept[:4])} and {len(kept) - 4} more (all with --json)" in page


def test_a_target_that_nobody_knows_is_refused(model: Path) -> None:
    result = run(model, "--target", "toaster")
    assert result.exit_code == 2
    assert "'toaster' is no target that is known" in result.stderr


def test_a_directory_with_markup_in_its_name_is_shown_as_it_is(tmp_path: Path) -> None:
    directory = write_tiny_model(tmp_path / "[red]model")
    assert "[red]model" in run(directory).stdout


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KiB"), (3 << 40, "3,072.0 GiB")]
)
def test_sizes_are_written_as_people_do(number: int, words: str) -> None:
    assert size(number) == words


@pytest.mark.parametrize(("weights", "slots"), [(0, 0), (10, 3), (99, 1), (10**6, 0), (1, 10**6)])
def test_the_picture_is_as_wide_whatever_it_shows(weights: int, slots: int) -> None:
    report = MemoryReport(
        target="t",
        arithmetic="int8",
        total=100,
        fixed=1,
        weights=weights,
        kv_bytes_per_token=1,
        context=5,
        slots=slots,
    )
    assert len(bar(report)) == 32
