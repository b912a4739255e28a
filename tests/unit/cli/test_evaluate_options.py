"""What `copydesk model evaluate` makes of its options, and how it tells progress."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from copydesk.cli.commands import model_evaluate as command
from copydesk.cli.commands.model_evaluate import EvaluateRequest, MarginSyntaxError, Pace, Teller, margins_of
from copydesk.cli.main import app
from copydesk.evaluation import Format, Progress, Source


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[EvaluateRequest]:
    requests: list[EvaluateRequest] = []

    def run(request: EvaluateRequest) -> int:
        requests.append(request)
        return 0

    monkeypatch.setattr(command, "run", run)
    return requests


def evaluate(line: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["model", "evaluate", *line.split()], env={"COLUMNS": "200"})
    return result.exit_code, result.output


def test_references_may_follow_each_other(asked: list[EvaluateRequest]) -> None:
    code, output = evaluate("new --against old --data dev.src --references r0 r1 r2 --references r3 --tokenised")
    assert code == 0, output
    references = (Path("r0"), Path("r3"), Path("r1"), Path("r2"))
    assert asked[0].source == Source(Path("dev.src"), references, None, Format.AUTO, True)
    assert (asked[0].candidate, asked[0].reference) == ("new", "old")


def test_without_data_it_is_our_own_set(asked: list[EvaluateRequest]) -> None:
    assert evaluate("new --limit 5 --margin 0.5 --margin over-correction=3")[0] == 0
    request = asked[0]
    assert request.source is None
    assert request.options.margins == {"gleu": 0.5, "over_correction": 3.0}
    assert len(command.corpus_of(request).examples) == 5


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("new stray", "go with --data FILE"),
        ("new --references a", "go with --data FILE"),
        ("new --format m2", "are for --data FILE"),
        ("new --margin gleu=much", "NAME=NUMBER"),
        ("new --format csv", "csv"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    asked: list[EvaluateRequest], line: str, complaint: str
) -> None:
    code, output = evaluate(line)
    assert code == 2
    assert complaint in output
    assert asked == []


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("/nowhere --limit 1", "no directory of a model"),
        (". --data /nowhere.tsv", "No such file"),
        (". --html /nowhere/page.html", "there is no directory"),
        ("http://127.0.0.1:9 --dtype int8", "whose pods choose"),
        ("http://127.0.0.1:9", "no fleet answers"),
        (". --limit 1", "config.json"),
    ],
)
def test_what_cannot_be_evaluated_ends_with_2_and_a_reason(
    line: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "configure_logging", lambda *_, **__: None)  # it is for a whole process
    code, output = evaluate(line)
    assert code == 2
    assert complaint in " ".join(output.split())


def test_margins_are_numbers_with_a_name() -> None:
    assert margins_of(["1.5", "f0.5=2"]) == {"gleu": 1.5, "f0.5": 2.0}
    with pytest.raises(MarginSyntaxError):
        margins_of(["gleu="])


def test_a_pace_counts_from_the_first_answers() -> None:
    now = [0.0]
    pace = Pace(lambda: now[0])
    assert pace.rate(Progress("x", 0, 10)) is None
    now[0] = 2.0
    assert pace.rate(Progress("x", 6, 10)) == 3.0
    assert pace.text(Progress("x", 6, 10)) == "3.0/s"


def test_progress_is_told_at_each_stage_and_then_every_ten_seconds() -> None:
    now, lines = [0.0], list[str]()
    teller = Teller(lines.append, lambda: now[0])
    teller(Progress("one at a time", 0, 30))
    for step in range(1, 25):
        now[0] = float(step)
        teller(Progress("one at a time", step, 30))
    teller(Progress("scoring", 0, 0))
    assert lines == [
        "one at a time: 0 of 30 answers",
        "one at a time: 10 of 30 answers, 1.0/s, about 20 s left",
        "one at a time: 20 of 30 answers, 1.0/s, about 10 s left",
        "scoring",
    ]
