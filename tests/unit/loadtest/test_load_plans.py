"""Loads that change over time, and those of a trace."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copydesk.loadtest import Plan, PlanError
from copydesk.loadtest.trace import TraceError, read_trace


@settings(max_examples=50, deadline=None)
@given(st.floats(0.5, 500), st.floats(0.1, 5), st.integers())
def test_a_counted_process_has_as_many_arrivals_as_the_rate_makes(rate: float, duration: float, seed: int) -> None:
    offsets = Plan.counted_poisson(rate, duration, random.Random(seed)).offsets
    assert len(offsets) == max(1, round(rate * duration))
    assert list(offsets) == sorted(offsets)
    assert all(0 <= offset < duration for offset in offsets)


@settings(max_examples=50, deadline=None)
@given(st.floats(0, 300), st.floats(0, 300), st.floats(0.1, 5), st.integers())
def test_a_ramp_ascends_within_its_time(first: float, last: float, duration: float, seed: int) -> None:
    if first + last < 0.01:
        return
    offsets = Plan.ramp(first, last, duration, random.Random(seed)).offsets
    assert list(offsets) == sorted(offsets)
    assert all(0 <= offset <= duration for offset in offsets)


@pytest.mark.parametrize(("first", "last"), [(0, 200), (200, 0), (100, 100)])
def test_a_ramp_has_at_each_moment_the_rate_between(first: float, last: float) -> None:
    offsets = Plan.ramp(first, last, 100.0, random.Random(5)).offsets
    assert len(offsets) == pytest.approx(10_000, rel=0.04)
    for part in range(4):
        wanted = 25 * (first + (last - first) * (part + 0.5) / 4)
        found = sum(25 * part <= offset < 25 * (part + 1) for offset in offsets)
        assert found == pytest.approx(wanted, rel=0.15)


def test_a_burst_stands_out_while_it_lasts() -> None:
    plan = Plan.burst(50, 500, 30.0, at=10.0, length=5.0, rng=random.Random(2))
    inside = sum(10 <= offset < 15 for offset in plan.offsets)
    assert inside == pytest.approx(2500, rel=0.1)
    assert len(plan.offsets) - inside == pytest.approx(1250, rel=0.15)
    assert list(plan.offsets) == sorted(plan.offsets)


def test_a_burst_must_end_within_the_load() -> None:
    with pytest.raises(PlanError, match=r"burst end is 35\.0, expected at most the duration, 30"):
        Plan.burst(5, 50, 30.0, at=30.0, length=5.0, rng=random.Random(2))


def test_a_ramp_from_nothing_to_nothing_is_refused() -> None:
    with pytest.raises(PlanError):
        Plan.ramp(0, 0, 10, random.Random(1))
    with pytest.raises(PlanError, match="first rate"):
        Plan.ramp(-1, 10, 10, random.Random(1))


def test_a_trace_keeps_its_gaps_at_any_speed() -> None:
    assert Plan.of_times([100.0, 100.5, 104.0], speed=2.0).offsets == (0.0, 0.25, 2.0)
    assert Plan.of_times([]).offsets == ()


@pytest.mark.parametrize(
    ("name", "content", "times"),
    [
        ("a.csv", "1.5\n2\n2\n7e1\n", [1.5, 2.0, 2.0, 70.0]),
        ("b.csv", "model,Timestamp,tokens\na,10,5\n\nb,11.25,6\n", [10.0, 11.25]),
        ("c.csv", '"TIMESTAMP",n\n2023-11-16 18:17:03.5000000,1\n', [1700158623.5]),
        ("d.jsonl", '{"time": 3, "x": 1}\n\n{"arrived_at": "4.5"}\n6\n', [3.0, 4.5, 6.0]),
        ("e.ndjson", '{"timestamp": "2023-11-16T18:17:03+00:00"}\n', [1700158623.0]),
    ],
)  # fmt: skip
def test_times_are_read_from_csv_and_json_lines(
    tmp_path: Path, name: str, content: str, times: list[float]
) -> None:
    (tmp_path / name).write_text(content)
    assert read_trace(tmp_path / name) == times


@pytest.mark.parametrize(
    ("name", "content", "line", "reason"),
    [
        ("a.csv", "1\n2\n1.5\n", 3, "time runs backwards: 1.500000 after 2.000000"),
        ("b.csv", "", 0, "holds no arrivals"),
        ("c.csv", "timestamp\n", 0, "holds no arrivals"),
        ("d.csv", "1\nsoon\n", 2, "'soon' is no time"),
        ("e.csv", "1\nnan\n", 2, "'nan' is no time"),
        ("f.csv", "x,time\n1,2\n3\n", 3, "has 1 columns"),
        ("g.jsonl", "1\n{", 2, "no JSON"),
        ("h.jsonl", '{"when": 1}\n', 1, "'None' is no time"),
    ],
)
def test_a_trace_that_cannot_be_used_is_refused_with_the_line(
    tmp_path: Path, name: str, content: str, line: int, reason: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(TraceError) as caught:
        read_trace(tmp_path / name)
    assert caught.value.line == line
    assert reason in str(caught.value)


def test_a_trace_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="No such file"):
        read_trace(tmp_path / "none.csv")
    (tmp_path / "binary.csv").write_bytes(json.dumps(1).encode() + b"\xff\xfe")
    with pytest.raises(TraceError, match="not UTF-8"):
        read_trace(tmp_path / "binary.csv")
