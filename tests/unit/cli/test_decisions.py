"""Decisions for people: put together, told, and found by moments."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from copydesk.autoscaler.compare import compare
from copydesk.autoscaler.log_entry import Entry, Virtual
from copydesk.autoscaler.observer import Outcome
from copydesk.cli.decisions.moment import MomentError, read_moment
from copydesk.cli.decisions.plain import plain
from copydesk.cli.decisions.render import comparison_tables, decision_table, told
from copydesk.cli.decisions.row import rows
from copydesk.cli.main import app

NOON = 1_764_504_000.0


def entry(sequence: int, size: int = 3, replicas: int = 3, **changes: Any) -> Entry:
    fields: dict[str, Any] = {
        "time": NOON + 2.0 * sequence,
        "model": "gec-en",
        "epoch": 7,
        "policy": "live",
        "rule": "steady",
        "reason": "stay at 3: it is enough",
        "acted": "kept",
        "slo_ms": 1000.0,
    }
    return Entry(sequence=sequence, size=size, replicas=replicas, **{**fields, **changes})


def shown(table: object, width: int = 120) -> str:
    console = Console(width=width, highlight=False)
    with console.capture() as capture:
        console.print(table)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def test_decisions_that_kept_the_size_by_the_same_rule_are_one_row() -> None:
    story = [entry(1), entry(2), entry(3, 3, 5, rule="up"), entry(4, 5, 5), entry(5, 5, 5, rule="hold_pace")]
    assert [(row.first.sequence, row.last.sequence, row.count) for row in rows(story)] == [
        (1, 2, 2),
        (3, 3, 1),
        (4, 4, 1),
        (5, 5, 1),
    ]
    assert len(rows(story, every=True)) == 5


@pytest.mark.parametrize(
    "changes",
    [{"epoch": 8}, {"time": NOON + 500.0}, {"acted": "failed: away"}, {"model": "other"}, {"policy": "x"}],
)
def test_what_tells_another_story_is_a_row_of_its_own(changes: dict[str, Any]) -> None:
    assert len(rows([entry(1), entry(2, **changes)])) == 2


def test_what_came_of_a_decision_stands_in_the_lines_after_it() -> None:
    first, second = rows(
        [
            entry(1, 3, 5, rule="up", observed=Outcome(seconds=2.0, p99_ms=9000.0, shed=99)),
            entry(2, 5, 5, observed=Outcome(seconds=2.0, p99_ms=1200.0, shed=7, failed=1)),
            entry(3, 5, 5, observed=Outcome(seconds=2.0, p99_ms=300.0, completed=80)),
        ]
    )
    assert (first.p99_ms, first.shed, first.failed) == (1200.0, 7, 1)
    assert (second.p99_ms, second.shed, second.completed) == (300.0, 0, 80)


def test_a_table_says_when_how_many_by_which_rule_and_why() -> None:
    table = decision_table(
        rows(
            [
                entry(1),
                entry(2),
                entry(
                    3, 3, 5, rule="panic", reason="add 2 to be 5: demand has jumped [red]", acted="failed: away"
                ),
                entry(4, 5, 5, observed=Outcome(seconds=2.0, p99_ms=1234.5, shed=7)),
                entry(5, 5, 5, stuck=("a", "b", "c", "d"), reason="stay at 5: x"),
            ]
        )
    )
    lines = shown(table).splitlines()
    assert lines[0].split() == ["time", "pods", "rule", "and", "then", "why"]
    assert "(2 decisions)" in lines[1]
    assert "3 → 5 (+2)  panic   P99 1234 ms, 7 shed  demand has jumped [red]  failed: away" in lines[2]
    assert "stuck: a, b, c and 1 more" in lines[3]


WHY = "demand is 7.0 pods' worth, rising by 4.5 a minute; at 85% a pod that takes 10"


@pytest.mark.parametrize("width", [40, 60, 80])
def test_where_a_line_has_no_room_for_it_the_reason_stands_below_in_whole_words(width: int) -> None:
    busy = Outcome(seconds=2.0, p99_ms=10_000.0, shed=53)
    story = [entry(1, 9, 10, rule="hold_new_leader", reason=f"x: {WHY}"), entry(2, 10, 10, observed=busy)]
    for shape in (decision_table(rows(story)), told(story[0])):
        lines = shown(shape, width=width).splitlines()
        assert max(map(len, lines)) <= width
        told_why = " ".join(line.strip() for line in lines if line.startswith("    "))
        assert WHY in told_why
        assert max(len(line) for line in lines if line.startswith("    ")) > width / 2
        assert "9 → 10 (+1)" in " ".join(lines)


def test_models_and_policies_are_columns_where_there_are_several() -> None:
    table = shown(decision_table(rows([entry(1), entry(1, policy="lean"), entry(1, model="other")])))
    assert table.splitlines()[0].split()[:4] == ["time", "model", "policy", "pods"]


def test_a_comparison_fits_on_eighty_columns_and_explains_its_words() -> None:
    story = []
    for sequence in range(1, 6):
        story.append(entry(sequence, observed=Outcome(seconds=2.0, p99_ms=1400.0)))
        story.append(entry(sequence, policy="lean", replicas=2, virtual=Virtual(ready=2, work=2.5)))
    text = shown(comparison_tables(compare(story)), width=80)
    assert "lean beside live" in text
    assert "…" not in text
    assert "too few: fewer pods, and at times too few for the work" in text
    assert max(map(len, text.splitlines())) <= 80


HERE = timezone(timedelta(hours=2))
NOW = datetime(2026, 3, 4, 15, 0, tzinfo=HERE)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("30m", NOW - timedelta(minutes=30)),
        ("1.5 h ago", NOW - timedelta(minutes=90)),
        ("2d", NOW - timedelta(days=2)),
        ("14:30", datetime(2026, 3, 4, 14, 30, tzinfo=HERE)),
        ("14:30:05", datetime(2026, 3, 4, 14, 30, 5, tzinfo=HERE)),
        ("2026-03-01", datetime(2026, 3, 1, tzinfo=HERE)),
        ("2026-03-01T10:00Z", datetime(2026, 3, 1, 12, 0, tzinfo=HERE)),
    ],
)
def test_moments_are_read_as_people_write_them(text: str, moment: datetime) -> None:
    assert read_moment(text, NOW) == moment.timestamp()


@pytest.mark.parametrize("text", ["", "yesterday", "25:00", "2026-13-01", "9" * 400 + "d", "30"])
def test_what_is_no_moment_is_said_to_be_none(text: str) -> None:
    with pytest.raises(MomentError, match="expected as 30m"):
        read_moment(text, NOW)


def test_local_moments_are_read_by_the_rules_of_their_own_season(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        winter = datetime(2026, 11, 30, 12, 0)
        assert read_moment("2026-07-01T14:30", winter) == datetime(2026, 7, 1, 12, 30, tzinfo=UTC).timestamp()
        assert read_moment("2026-11-29T14:30", winter) == datetime(2026, 11, 29, 13, 30, tzinfo=UTC).timestamp()
        after_the_change = datetime(2026, 10, 25, 12, 0)
        assert read_moment("24h", after_the_change) == after_the_change.timestamp() - 86_400.0
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_moment_that_is_none_is_named_as_it_was_written() -> None:
    with pytest.raises(MomentError, match=r"^'25:00' is no moment"):
        read_moment("25:00", NOW)


def test_what_is_told_cannot_move_the_cursor_or_hide_anything() -> None:
    evil = "\x1b[2J\x9b31m\u202e\n"
    one = entry(1, model=evil, policy=evil, rule=evil, reason=evil, acted=evil, stuck=(evil,))
    line = shown(decision_table(rows([plain(one)])), 400)
    assert not set("\x1b\x9b\u202e") & set(line)
    assert "\N{REPLACEMENT CHARACTER}[2J\N{REPLACEMENT CHARACTER}31m" in line
    assert plain(entry(2)) == entry(2)


@pytest.mark.parametrize("command", ["explain", "compare"])
def test_without_the_autoscaler_installed_the_command_says_what_to_install(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("copydesk.cli.commands.autoscaler")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "copydesk.autoscaler.log_entry", None)
    result = CliRunner().invoke(app, ["autoscaler", command])
    assert result.exit_code == 2
    assert "install copydesk-cli[fleet]" in result.output


def test_a_span_that_ends_before_it_begins_is_named_as_one() -> None:
    result = CliRunner().invoke(app, ["autoscaler", "compare", "--from", "14:00", "--to", "13:00"])
    assert result.exit_code == 2
    assert "--from 14:00 is not before --to 13:00" in result.output
