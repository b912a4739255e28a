"""`copydesk model evaluate` with real engines over tiny models, and through a gateway's API."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from copydesk.cli.evaluation.subjects import RemoteModel
from copydesk.cli.main import app
from tests.fixtures.scripted_http import Answer, Asked, ScriptedServer, scripted
from tests.fixtures.tiny_model import write_tiny_model

KEYS = {"gleu", "gleu_reference", "exact_match", "over_correction", "agreement", "verdict"}
M2 = "S She go home .\nA 1 2|||R:VERB:SVA|||goes|||REQUIRED|||-NONE-|||0\n\nS It is n't late .\n\n"
PAIRS = "".join(f"She go home {n}.\tShe goes home {n}.\nAll is well {n}.\tAll is well {n}.\n" for n in range(60))


@pytest.fixture(autouse=True)
def as_if_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What the command sets for a whole process is undone: logging, threads, the environment."""
    monkeypatch.setattr("copydesk.cli.commands.model_evaluate.configure_logging", lambda *_, **__: None)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_tiny_model(folder / "quiet", always_stops=True)
    return folder


def evaluate(*arguments: object) -> Result:
    shown = [str(argument) for argument in arguments]
    return CliRunner().invoke(app, ["model", "evaluate", *shown, "--edits", "own"])


def found(result: Result, code: int) -> dict[str, object]:
    assert result.exit_code == code, result.output
    plain: dict[str, object] = json.loads(result.stdout)
    assert plain.keys() >= KEYS
    return plain


def test_a_directory_beside_itself_passes_and_writes_a_report(models: Path, tmp_path: Path) -> None:
    data, page = tmp_path / "pairs.tsv", tmp_path / "report.html"
    data.write_text(PAIRS)
    quiet = models / "quiet"
    options = ("--dtype", "float32", "--against-dtype", "float32", "--margin", "over_correction=5")
    plain = found(evaluate(quiet, "--against", quiet, "--data", data, "--json", "--html", page, *options), 0)
    assert plain["verdict"] == "pass"
    assert plain["gleu"] == plain["gleu_reference"]
    assert (plain["agreement"], plain["over_correction"], plain["exact_match"]) == (1.0, 0.0, 0.5)
    assert page.read_text().startswith("<!doctype html>")


def test_a_directory_alone_is_scored_over_m2_in_tokens(models: Path, tmp_path: Path) -> None:
    data = tmp_path / "data.m2"
    data.write_text(M2)
    plain = found(evaluate(models / "quiet", "--data", data, "--json", "--dtype", "float32"), 0)
    assert plain["verdict"] is None
    assert plain["tokenised"] is True
    assert plain["gleu"] == plain["gleu_unchanged"]


def test_a_few_sentences_are_too_few_to_tell(models: Path, tmp_path: Path) -> None:
    data = tmp_path / "pairs.tsv"
    data.write_text(PAIRS)
    quiet = models / "quiet"
    result = evaluate(quiet, "--against", quiet, "--data", data, "--limit", 8, "--dtype", "float32")
    assert result.exit_code == 3, result.output
    assert "inconclusive" in result.stdout
    assert "42 sentences more" in result.stdout


def fleet(change: Callable[[str], str]) -> Callable[[Asked], Answer]:
    def script(asked: Asked) -> Answer:
        if asked.path == "/v1/fleet":
            body: dict[str, object] = {"pods": [], "model": "gec", "model_digest": "0123456789abcdef"}
        else:
            body = {"corrected": change(json.loads(asked.body)["text"]), "edits": []}
        return Answer(headers={"Content-Type": "application/json"}, body=json.dumps(body).encode())

    return script


def url(server: ScriptedServer) -> str:
    return f"http://{server.host}"


def test_a_fleet_that_corrects_worse_than_a_directory_fails(models: Path, tmp_path: Path) -> None:
    data = tmp_path / "pairs.tsv"
    data.write_text(PAIRS)
    with scripted(fleet(lambda text: text.replace("well", "good"))) as server:
        options = ("--against-dtype", "float32", "--alone", 3)
        plain = found(evaluate(url(server), "--against", models / "quiet", "--data", data, "--json", *options), 1)
        # Once to warm it up, once to see who is there, and once for every sentence.
        assert len(server.paths("POST")) == 121
    assert plain["verdict"] == "fail"
    assert plain["over_correction"] == 1.0


def test_two_fleets_are_compared(tmp_path: Path) -> None:
    data = tmp_path / "pairs.tsv"
    data.write_text(PAIRS)
    with (
        scripted(fleet(lambda text: text.replace("She go ", "She goes "))) as better,
        scripted(fleet(lambda text: text)) as worse,
    ):
        options = ("--data", data, "--json", "--margin", "over_correction=5")
        plain = found(evaluate(url(better), "--against", url(worse), *options), 0)
    assert plain["gleu"] == 100.0
    assert plain["exact_match"] == 1.0


def test_a_connection_that_is_lost_once_costs_no_evaluation() -> None:
    served, pauses = fleet(lambda text: text), list[float]()

    def lose_the_first(asked: Asked) -> Answer:
        lost = asked.method == "POST" and len(server.paths("POST")) == 1
        return Answer(cut=-1) if lost else served(asked)

    with scripted(lose_the_first) as server:
        model = RemoteModel(url(server), sleep=pauses.append)
        try:
            assert [answer.text for answer in model.correct(["All is well."])] == ["All is well."]
        finally:
            model.close()
    assert pauses == [0.5]
