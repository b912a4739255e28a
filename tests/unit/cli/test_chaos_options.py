"""What can be said to `copydesk chaos`, and what of it strikes which fleet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from copydesk.chaos.kinds import Kind, of_links
from copydesk.chaos.strikes import Arena
from copydesk.cli.chaos.ground import possible
from copydesk.cli.commands import chaos as command
from copydesk.cli.main import app
from copydesk.faults import FaultProxy


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Returns the request that a command line makes."""
    requests: list[command.ChaosRequest] = []

    def take(request: command.ChaosRequest) -> int:
        requests.append(request)
        return 0

    monkeypatch.setattr(command, "chaos", take)
    monkeypatch.setenv("COPYDESK_URL", "https://copydesk.example")

    def ask(*arguments: str) -> command.ChaosRequest:
        assert CliRunner().invoke(app, ["chaos", *arguments]).exit_code == 0
        return requests[-1]

    return ask


def test_a_fleet_of_its_own_is_struck_by_all_and_one_that_runs_by_nothing(asked: Callable[..., Any]) -> None:
    assert asked().kinds == tuple(Kind)
    assert asked("--url", "http://127.0.0.1:1").kinds == ()
    assert asked("--state-dir", "/tmp/fleet").kinds == ()
    assert asked("--faults", "none").kinds == ()
    assert asked().on_its_own
    assert not asked("--state-dir", "/tmp/fleet").on_its_own


def test_faults_are_named_one_by_one_or_in_groups(asked: Callable[..., Any]) -> None:
    found = asked("--url", "http://127.0.0.1:1", "--faults", "nats, pod-kill").kinds
    assert set(found) == {Kind.POD_KILL, Kind.NATS_KILL, Kind.NATS_AWAY}


def test_minutes_and_percent_become_seconds_and_a_share(asked: Callable[..., Any]) -> None:
    request = asked("--minutes", "2.5", "--availability", "99.9")
    assert request.seconds == 150.0
    assert request.availability == pytest.approx(0.999)


def test_a_fault_that_is_none_is_refused_with_those_that_are() -> None:
    result = CliRunner().invoke(app, ["chaos", "--faults", "pod-kill,meteor"])
    assert result.exit_code == 2
    assert "meteor" in result.output


def test_only_what_is_there_can_be_struck() -> None:
    bare = Arena(dict, ("up", "nats", "eds", "pod-1", "pod-2", "gateway"))
    assert set(possible(tuple(Kind), bare)) == {
        Kind.POD_KILL,
        Kind.POD_FREEZE,
        Kind.POD_SLOW,
        Kind.ENGINE_KILL,
        Kind.ENGINE_FREEZE,
        Kind.WORKER_KILL,
        Kind.NATS_KILL,
        Kind.NATS_AWAY,
        Kind.EDS_KILL,
        Kind.EDS_FREEZE,
    }
    full = Arena(dict, ("nats", "eds", "redis", "autoscaler"), {"pod-1": FaultProxy(("127.0.0.1", 1))})
    assert possible(tuple(Kind), full) == tuple(Kind)
    assert set(of_links(Kind)) <= set(possible(tuple(Kind), full))


def test_faults_of_a_fleet_that_is_not_here_are_refused() -> None:
    result = CliRunner().invoke(app, ["chaos", "--url", "http://127.0.0.1:9", "--faults", "nats"])
    assert result.exit_code == 2
    assert "is for a fleet that copydesk up started on this machine" in result.output


def test_the_fleet_that_other_commands_talk_to_is_loaded_only_when_it_is_named(asked: Callable[..., Any]) -> None:
    assert asked().url is None


def test_a_state_dir_of_no_fleet_is_refused_and_none_taken_in_its_place(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["chaos", "--state-dir", str(tmp_path)])
    assert result.exit_code == 2
    assert f"no fleet runs that was started with --state-dir {tmp_path}" in result.output.replace("\n", " ")


def test_where_no_fleet_answers_the_error_says_what_to_do() -> None:
    result = CliRunner().invoke(app, ["chaos", "--url", "http://127.0.0.1:9"])
    assert result.exit_code == 2
    assert "no fleet answers at http://127.0.0.1:9" in result.output
    assert "start one with `copydesk up`" in result.output


def test_the_sentences_of_a_run_are_those_of_its_seed() -> None:
    texts = [f"Sentence {n}." for n in range(200)]
    assert command.chosen(texts, 1) == command.chosen(texts, 1) != command.chosen(texts, 2)
    assert len(command.chosen(texts, 1)) == command.MOST_TEXTS
    assert command.chosen(texts[:3], 1) != []
