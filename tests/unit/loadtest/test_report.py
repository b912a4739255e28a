"""The figures of a run, for machines and for people."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.loadtest import Quantiles, RequestFailedError, Sample, render, summarise
from copydesk.loadtest.report import nearest_rank


def hundred() -> list[Sample]:
    return [Sample(planned=1.0, sent=1.002, finished=1.0 + index / 1000) for index in range(1, 101)]


@given(st.lists(st.floats(0, 1e6), min_size=1), st.sampled_from([0.5, 0.9, 0.99]))
def test_a_quantile_is_an_observed_value_that_enough_do_not_exceed(values: list[float], quantile: float) -> None:
    ascending = sorted(values)
    found = nearest_rank(ascending, quantile)
    assert found in values
    assert sum(value <= found for value in values) >= quantile * len(values)
    assert sum(value < found for value in values) < quantile * len(values)


def test_latency_counts_from_the_planned_moment() -> None:
    report = summarise(hundred(), planned=120, offered_rate=50.0)
    assert report.latency_ms is not None
    assert report.latency_ms.p50 == pytest.approx(50)
    assert report.latency_ms.p90 == pytest.approx(90)
    assert report.latency_ms.p99 == pytest.approx(99)
    assert report.latency_ms.max == pytest.approx(100)
    assert report.lateness_ms is not None
    assert report.lateness_ms.max == pytest.approx(2)


def test_failures_do_not_count_as_latency() -> None:
    failed = Sample(0.9, 0.9, 0.9001, RequestFailedError("http_429", "x" * 1000))
    report = summarise([*hundred(), failed], planned=101, offered_rate=50.0)
    assert report.latency_ms == summarise(hundred(), planned=100, offered_rate=50.0).latency_ms
    assert report.achieved_rate == pytest.approx(100 / 0.2)
    assert [len(message) for message in report.failures[0].messages] == [200]


def test_equal_messages_are_shown_once() -> None:
    samples = [Sample(0, 0, 1, RequestFailedError("k", text)) for text in ("a", "a", "b", "a", "c", "d")]
    (failures,) = summarise(samples, planned=6, offered_rate=None).failures
    assert (failures.count, failures.messages) == (6, ("a", "b", "c"))


def test_a_report_is_plain_data_for_json() -> None:
    sample = Sample(0.0, 0.25, 0.5)
    failed = Sample(0.0, 0.0, 0.5, RequestFailedError("ConnectError", "refused"))
    report = summarise([sample, failed], planned=3, offered_rate=4.0)
    plain = report.to_dict()
    assert json.loads(json.dumps(plain)) == {
        "planned": 3,
        "sent": 2,
        "ok": 1,
        "failures": [{"kind": "ConnectError", "count": 1, "messages": ["refused"]}],
        "offered_rate": 4.0,
        "achieved_rate": 2.0,
        "duration_s": 0.5,
        "latency_ms": {"p50": 500.0, "p90": 500.0, "p99": 500.0, "max": 500.0},
        "lateness_ms": {"p50": 0.0, "p90": 250.0, "p99": 250.0, "max": 250.0},
    }


def test_the_table_is_short_and_aligned() -> None:
    failed = Sample(0.0, 0.0, 0.5, RequestFailedError("ConnectError", "all connection\nattempts failed"))
    report = summarise([Sample(0.0, 0.25, 0.5), failed], planned=3, offered_rate=4.0)
    assert render(report).splitlines() == [
        "requests      2 sent of 3, 1 ok, 1 failed",
        "rate          2.0/s ok, 4.0/s offered, 0.5 s",
        "latency       P50 500.0  P90 500.0  P99 500.0  max 500.0 ms",
        "lateness      P50 0.0  P90 250.0  P99 250.0  max 250.0 ms",
        "ConnectError  1: all connection attempts failed",
    ]


def test_a_table_without_answers_says_so() -> None:
    report = summarise([], planned=0, offered_rate=None)
    assert report.latency_ms is None
    assert "latency   none" in render(report)


def test_quantiles_of_one_value_are_that_value() -> None:
    report = summarise([Sample(0.0, 0.0, 0.5)], planned=1, offered_rate=None)
    assert report.latency_ms == Quantiles(p50=500.0, p90=500.0, p99=500.0, max=500.0)
