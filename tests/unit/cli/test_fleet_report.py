"""Events for people and for programs."""

from __future__ import annotations

import io
import json

import msgspec
import pytest

from copydesk.cli.fleet import events
from copydesk.cli.fleet.report import ConsoleReport, JsonReport, seconds, telling
from copydesk.cli.terminal import LastingConsole

EXITED = events.ChildExited(
    time=1.0,
    name="pod-1",
    pid=7,
    code=-9,
    how="was killed by SIGKILL",
    uptime_s=3.25,
    restart_in_s=0.2,
    log="/state/[x]/pod-1.log",
)
FAILED = events.Failed(
    time=1.0, name="eds", reason="exited with code 2", log="/l", log_tail=("[bold]not markup", "last"), exit_code=2
)


class Gone(io.StringIO):
    """A stream whose reader has left."""

    def write(self, _: str) -> int:
        raise BrokenPipeError


def test_a_program_gets_one_object_a_line() -> None:
    stream = io.StringIO()
    report = JsonReport(stream)
    report(EXITED)
    report(events.Ready(time=2.0, url="http://x", after_s=1.0))
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert first["event"] == "child_exited"
    assert (first["name"], first["code"], first["restart_in_s"]) == ("pod-1", -9, 0.2)
    assert second == {"event": "ready", "time": 2.0, "url": "http://x", "after_s": 1.0}


def test_a_person_reads_who_ended_how_and_when_it_is_back() -> None:
    stream = io.StringIO()
    ConsoleReport(LastingConsole(file=stream))(EXITED)
    line = stream.getvalue()
    assert line.count("\n") == 1
    assert "pod-1 was killed by SIGKILL after 3.2 s; restarting in 0.2 s" in line
    assert "/state/[x]/pod-1.log" in line


SCALED = events.Scaled(time=1.0, before=2, pods=3, reason="demand [x] grew", rule="up", epoch=7, sequence=1)
STARTING = events.Starting(
    time=1.0, url="u", model="tiny", model_dir="m", pods=1, threads=1, state_dir="s", logs="l", processes=()
)


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (SCALED, "2 -> 3 pods: demand [x] grew"),
        (
            msgspec.structs.replace(SCALED, reason="add 1 to be 3: demand: it grew"),
            "2 -> 3 pods: demand: it grew\n",
        ),
        (events.Draining(time=1.0, name="pod-3", pid=7), "pod-3 gets nothing new"),
        (
            events.Drained(time=1.0, name="pod-3", how="exited with code 0", after_s=0.4),
            "pod-3 exited with code 0",
        ),
        (events.Refused(time=1.0, pods=9, reason="too old", epoch=1, sequence=1), "a decision of 9 pods: too old"),
        (events.NotStarted(time=1.0, name="pod-3", reason="no [memory]", retry_in_s=0.4), "no [memory]"),
        (STARTING, "1 pod, 1 thread each\n"),
        (
            msgspec.structs.replace(STARTING, candidate="/my [new]/p.yaml", candidate_pods=2),
            "1 thread each; beside, 2 pods of /my [new]/p.yaml\n",
        ),
        (
            msgspec.structs.replace(STARTING, candidate="/my [new]/p.yaml", candidate_pods=2),
            "copydesk model rollout --candidate '/my [new]/p.yaml'\n",
        ),
        (
            msgspec.structs.replace(STARTING, autoscale="1:3"),
            "1 pod, 1 thread each, 1 to 3 as the load asks\nwhat a pod",
        ),
        (
            msgspec.structs.replace(STARTING, autoscale="1:3", certificate="/c.json"),
            "1 pod, 1 thread each, 1 to 3 as the load asks\nlogs in l\n",
        ),
    ],
)
def test_a_person_reads_how_the_fleet_grows_and_shrinks(event: events.Event, words: str) -> None:
    stream = io.StringIO()
    ConsoleReport(LastingConsole(file=stream))(event)
    assert words in stream.getvalue()


def test_a_failure_shows_the_log_as_it_is() -> None:
    stream = io.StringIO()
    ConsoleReport(LastingConsole(file=stream))(FAILED)
    assert "[bold]not markup" in stream.getvalue()
    assert "last" in stream.getvalue()


def test_of_a_failures_log_the_routine_goes_unless_nothing_else_is_there() -> None:
    routine = '{"timestamp": "t", "level": "info", "event": "pod_listening"}'
    warning = '{"level": "warning", "event": "slow"}'
    assert telling((routine, warning, "copydesk inference: no chat template")) == (
        warning,
        "copydesk inference: no chat template",
    )
    assert telling((routine,)) == (routine,)
    assert telling(("[1]", "{}", '{"level": 3}')) == ("[1]", "{}", '{"level": 3}')


@pytest.mark.parametrize("make", [JsonReport, lambda stream: ConsoleReport(LastingConsole(file=stream))])
def test_a_reader_that_left_does_not_end_the_fleet(make: type[JsonReport]) -> None:
    make(Gone())(EXITED)


@pytest.mark.parametrize(("duration", "words"), [(1.25, "1.2 s"), (600, "10 min"), (9000, "2.5 h")])
def test_durations_are_written_in_the_unit_that_suits(duration: float, words: str) -> None:
    assert seconds(duration) == words
