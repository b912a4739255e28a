"""The metrics, as Prometheus reads them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from copydesk.common.rpc import Status
from copydesk.gateway.metrics import Histogram, Metrics


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
    route = ("route", "/v1/correct")
    assert found["copydesk_gateway_requests_total", frozenset({route, ("code", "200")})] == 2
    assert found["copydesk_gateway_requests_total", frozenset({route, ("code", "429")})] == 1
    assert found["copydesk_gateway_requests_in_flight", frozenset()] == 2
    assert found["copydesk_gateway_sentences_total", frozenset({("status", "ok")})] == 1
    assert found["copydesk_gateway_pods", frozenset({("state", "ready")})] == 3
    assert found["copydesk_gateway_request_seconds_bucket", frozenset({route, ("le", "0.05")})] == 2
    assert found["copydesk_gateway_request_seconds_bucket", frozenset({route, ("le", "+Inf")})] == 3
    assert found["copydesk_gateway_request_seconds_count", frozenset({route})] == 3
    assert metrics.retries == 1


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
