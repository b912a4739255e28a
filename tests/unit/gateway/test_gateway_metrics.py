"""The metrics, as Prometheus reads them."""

from __future__ import annotations

import asyncio
import inspect

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from copydesk.common.rpc import Status
from copydesk.gateway import faults
from copydesk.gateway.faults import CLIENT_GONE, OURS, ApiError
from copydesk.gateway.history import WORK
from copydesk.gateway.metrics import Histogram, Metrics
from tests.unit.gateway.conftest import Desk, snapshot


def samples(metrics: Metrics, pods: dict[str, int]) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    families = text_string_to_metric_families(metrics.render(pods))
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


def test_everything_counted_can_be_parsed_back() -> None:
    metrics = Metrics()
    metrics.request("/v1/correct", 200, 0.03)
    metrics.request("/v1/correct", 200, 0.3)
    metrics.request("/v1/correct", 429, 0.001)
    metrics.in_flight = 2
    metrics.sentence(Status.OK)
    metrics.retry("unavailable")
    metrics.retry("refused_by_budget")
    found = samples(metrics, {"ready": 3, "warming": 0})
    route, answered = ("route", "/v1/correct"), ("outcome", "answered")
    assert found["copydesk_gateway_requests_total", frozenset({route, ("code", "200")})] == 2
    assert found["copydesk_gateway_requests_total", frozenset({route, ("code", "429")})] == 1
    assert found["copydesk_gateway_requests_in_flight", frozenset()] == 2
    assert found["copydesk_gateway_sentences_total", frozenset({("status", "ok")})] == 1
    assert found["copydesk_gateway_pods", frozenset({("state", "ready")})] == 3
    assert found["copydesk_gateway_request_seconds_bucket", frozenset({route, answered, ("le", "0.05")})] == 1
    assert found["copydesk_gateway_request_seconds_bucket", frozenset({route, answered, ("le", "+Inf")})] == 2
    assert found["copydesk_gateway_request_seconds_count", frozenset({route, answered})] == 2
    assert metrics.retries == 1


def test_answers_errors_and_those_who_left_are_timed_apart() -> None:
    metrics = Metrics()
    for code in (200, 204, 400, 429, 503, CLIENT_GONE):
        metrics.request("/v1/correct", code, 0.1)
    found = samples(metrics, {})
    for outcome, count in (("answered", 2), ("error", 3), ("gone", 1)):
        labels = frozenset({("route", "/v1/correct"), ("outcome", outcome)})
        assert found["copydesk_gateway_request_seconds_count", labels] == count


def test_errors_are_counted_by_code_and_by_whose_fault_they_are() -> None:
    metrics = Metrics()
    for error in (faults.overloaded(10), faults.rate_limited(1.0, 1), faults.unexpected(), faults.unexpected()):
        metrics.request("/v1/correct", error.status, 0.1, error)
    metrics.request("/v1/correct", CLIENT_GONE, 0.1, faults.unexpected())
    found = {
        (labels["kind"], labels["side"]): value
        for (name, pairs), value in samples(metrics, {}).items()
        if name == "copydesk_gateway_errors_total" and (labels := dict(pairs))["route"] == "/v1/correct" and value
    }
    assert found == {
        ("overloaded", "service"): 1,
        ("rate_limited", "client"): 1,
        ("internal_error", "service"): 2,
    }


def test_what_an_alert_counts_is_there_before_the_first_error() -> None:
    made = (_example(function) for _, function in inspect.getmembers(faults, inspect.isfunction))
    ours = {error.code for error in made if error.ours}
    assert ours == set(OURS)
    found = samples(Metrics(), {})
    for route in WORK:
        for kind in ours:
            labels = frozenset({("route", route), ("kind", kind), ("side", "service")})
            assert found["copydesk_gateway_errors_total", labels] == 0


def _example(function: object) -> ApiError:
    """Call one of the functions that make errors, with any arguments."""
    assert inspect.isfunction(function)
    examples = {"str": "x", "str | None": None, "int": 1, "float": 1.0}
    needed = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    error = function(*(examples[parameter.annotation] for parameter in needed))
    assert isinstance(error, ApiError)
    return error


async def test_the_age_of_the_membership_begins_anew_with_each_word_of_discovery(desk: Desk) -> None:
    fleet = (await desk.gateway()).fleet
    before = asyncio.get_running_loop().time()
    assert fleet.membership_age(before + 100.0) >= 100.0
    fleet.apply(snapshot(epoch=2))
    heard = fleet.membership_age(before + 100.0)
    assert heard < 100.0
    fleet.apply(snapshot(epoch=1))  # nobody believes that one
    assert fleet.membership_age(before + 100.0) == heard


def test_labels_with_special_characters_survive() -> None:
    metrics = Metrics()
    metrics.request('a"b\\c\nd', 200, 0.1)
    labels = frozenset({("route", 'a"b\\c\nd'), ("code", "200")})
    assert samples(metrics, {})["copydesk_gateway_requests_total", labels] == 1


@given(st.lists(st.floats(0, 100)))
def test_buckets_are_cumulative_and_inclusive(values: list[float]) -> None:
    histogram = Histogram((0.1, 1.0, 10.0))
    for value in values:
        histogram.observe(value)
    counts = {bound: count for suffix, bound, count in histogram.samples() if suffix == "_bucket"}
    for bound in ("0.1", "1", "10", "+Inf"):
        assert counts[bound] == sum(value <= float(bound) for value in values)
