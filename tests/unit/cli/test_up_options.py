"""What `copydesk up` makes of its options on the size of a fleet."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from copydesk.cli.capacity.subject import hardware_at
from copydesk.cli.commands import up as up_command
from copydesk.cli.commands.up import CannotStartError, UpRequest, check_certificate
from copydesk.cli.fleet.plan import Scaling
from copydesk.cli.fleet.scaling import Limits
from copydesk.cli.main import app
from copydesk.loadtest.certificate import Certificate, CurvePoint, Hardware, Interval, write_certificate

HERE = hardware_at("http://127.0.0.1", None).name


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[UpRequest]:
    requests: list[UpRequest] = []

    def run(request: UpRequest) -> int:
        requests.append(request)
        return 0

    monkeypatch.setattr(up_command, "up", run)
    return requests


def copydesk(line: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, line.split(), env={"COLUMNS": "200"})
    return result.exit_code, result.output


def certificate(
    path: Path, *, model: str = "gec-en", hardware: str = HERE, threads: str = "", pods: int = 1
) -> Path:
    made = Certificate(
        model=model,
        model_digest="d",
        config_digest="c",
        hardware=Hardware(name=hardware, cores=8),
        config={"threads": threads} if threads else {},
        pods=pods,
        slo_ms=1000.0,
        rate=10.0,
        concurrency=4.0,
        interval=Interval(9.0, 11.0),
        curve=(CurvePoint(rate=5.0, concurrency=1.0, p50_ms=100.0, p99_ms=200.0),),
        made_at=1.0,
    )
    write_certificate(made, path)
    return path


def test_without_options_two_pods_stay_two(asked: list[UpRequest]) -> None:
    assert copydesk("up")[0] == 0
    assert copydesk("up --pods 5")[0] == 0
    assert [(request.pods, request.scaling) for request in asked] == [(2, None), (5, None)]


def test_limits_and_a_certificate_are_passed_on(asked: list[UpRequest]) -> None:
    assert copydesk("up --autoscale 1:4 --certificate capacity.json")[0] == 0
    (request,) = asked
    assert request.scaling == Scaling(Limits(1, 4), Path("capacity.json"))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("up --autoscale 4:1", "MIN"),
        ("up --autoscale 0:1", "MIN"),
        ("up --autoscale 3", "MIN:MAX"),
        ("up --autoscale 1:3 --pods 2", "--pods"),
        ("up --certificate capacity.json", "--autoscale"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_would(asked: list[UpRequest], line: str, words: str) -> None:
    code, output = copydesk(line)
    assert code == 2
    assert words in output
    assert not asked


def test_a_certificate_for_this_model_and_machine_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate(tmp_path / "c.json")
    monkeypatch.chdir(tmp_path)
    checked = check_certificate(Scaling(Limits(1, 2), Path("c.json")), "gec-en")
    assert checked.certificate == tmp_path / "c.json"


@pytest.mark.parametrize(("pods", "threads", "each"), [(1, "", 8), (4, "", 2), (16, "", 1), (4, "3", 3)])
def test_how_many_threads_a_measured_pod_had_follows_from_the_certificate(
    tmp_path: Path, pods: int, threads: str, each: int
) -> None:
    path = certificate(tmp_path / "c.json", pods=pods, threads=threads)
    assert check_certificate(Scaling(Limits(1, 4), path), "gec-en").measured_threads == each


@pytest.mark.parametrize(
    ("given", "wrong"), [({"model": "gec-de"}, "another model"), ({"hardware": "H100"}, "another hardware")]
)
def test_a_certificate_for_something_else_is_refused(tmp_path: Path, given: dict[str, str], wrong: str) -> None:
    path = certificate(
        tmp_path / "c.json", model=given.get("model", "gec-en"), hardware=given.get("hardware", HERE)
    )
    with pytest.raises(CannotStartError, match=wrong) as caught:
        check_certificate(Scaling(Limits(1, 4), path), "gec-en")
    assert "copydesk up --pods 4" in caught.value.hint


def test_hardware_may_be_named_as_it_was_for_the_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = certificate(tmp_path / "c.json", hardware="my laptop")
    monkeypatch.setenv("COPYDESK_AUTOSCALER_HARDWARE", "my laptop")
    assert check_certificate(Scaling(Limits(1, 4), path), "gec-en").certificate == path


def test_a_file_that_is_no_certificate_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CannotStartError, match="No such file"):
        check_certificate(Scaling(Limits(1, 4), tmp_path / "none.json"), "gec-en")
