"""Parts of a check run apart, each within its time, and one that breaks stops no other."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from copydesk.inference.gpu_check.__main__ import _PARTS, LACKING, main
from copydesk.inference.gpu_check.parts import PARTS, SECONDS, Part, Request, parts_of
from copydesk.inference.gpu_check.rows import Row
from copydesk.inference.gpu_check.running import run_all, run_apart, run_here


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    return Request("cpu", tmp_path, None, None, quick=True)


def works(_: Request) -> Iterator[Row]:
    yield Row("works", "one")
    yield Row("works", "two")


def breaks(_: Request) -> Iterator[Row]:
    yield Row("breaks", "one")
    raise ValueError("of all things")


def test_a_part_that_breaks_keeps_its_rows_and_stops_no_other(request_: Request) -> None:
    rows = list(run_all([Part("breaks", 9, breaks), Part("works", 9, works)], request_, 99, run_here))
    assert [(row.part, row.setting, row.ok) for row in rows] == [
        ("breaks", "one", None),
        ("breaks", "all", False),
        ("works", "one", None),
        ("works", "two", None),
    ]
    assert "of all things" in rows[1].note


def test_what_there_is_no_time_for_is_named(request_: Request) -> None:
    given: list[float] = []
    times = iter([0.0, 0.0, 30.0, 59.5])

    def run(part: Part, request: Request, seconds: float) -> Iterator[Row]:
        given.append(seconds)
        return part.run(request)

    parts = [Part(name, 40, works) for name in ("first", "second", "third")]
    rows = list(run_all(parts, request_, 60, run, clock=lambda: next(times)))
    assert given == [40, 30]
    assert (rows[-1].part, rows[-1].ok) == ("third", False)


def test_a_part_runs_in_a_process_of_its_own(request_: Request) -> None:
    machine = PARTS[0]
    rows = list(run_apart(machine, request_, 120))
    assert [row.setting for row in rows] == ["python", "torch", "device"]


def test_a_part_that_takes_too_long_is_stopped(request_: Request) -> None:
    rows = list(run_apart(PARTS[0], request_, 0.01))
    assert [(row.part, row.ok) for row in rows] == [("machine", False)]
    assert "stopped after" in rows[0].note


def test_a_process_that_fails_says_why(request_: Request, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    rows = list(run_apart(PARTS[0], dataclasses.replace(request_, work=tmp_path / "file" / "folder"), 120))
    assert [row.ok for row in rows] == [False]
    assert "NotADirectoryError" in rows[0].note


def test_all_parts_together_stay_below_eight_minutes(request_: Request) -> None:
    assert sum(part.seconds for part in PARTS) <= SECONDS < 480
    assert tuple(part.name for part in PARTS) == _PARTS
    assert [part.name for part in parts_of(request_, ["pods", "kernels"])] == ["kernels", "pods"]


def test_without_a_gpu_it_says_how_to_run_dry(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--device", "cuda:77"]) == LACKING
    assert "--device cpu --quick" in capsys.readouterr().err


def test_what_is_not_installed_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = {"no_such_module": "no-such-package", "json": "json"}
    monkeypatch.setattr("copydesk.inference.gpu_check.__main__.ENGINE", needed)
    assert main(["--device", "cpu"]) == LACKING
    assert "pip install no-such-package" in capsys.readouterr().err
