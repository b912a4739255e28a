"""The report of a load, its page and its charts."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.loadtest import RequestFailedError, Sample
from copydesk.loadtest.chart import Chart, Line, svg, ticks
from copydesk.loadtest.load_report import LoadReport, longest_stall, report_load
from copydesk.loadtest.page import html, rows


def frozen() -> list[Sample]:
    """Ten a second for six seconds; from second 2 on nobody is answered before second 4; some are refused."""
    refused = RequestFailedError("http_429", "busy & <full>")
    times = [index / 10 for index in range(60)]
    return [
        Sample(t, t + 0.001, 4.0 if 2.0 <= t < 4.0 else t + 0.05, refused if t >= 5.5 else None) for t in times
    ]


def report() -> LoadReport:
    return report_load(frozen(), shape="constant 10/s", seconds=6.0, slo_ms=1000.0, processes=2)


def test_goodput_counts_what_was_answered_within_the_objective() -> None:
    found = report()
    assert (found.planned, found.ok, found.shed, found.errors) == (60, 55, 5, 0)
    # Of the twenty that were due in the freeze, ten waited more than a second.
    assert found.goodput == pytest.approx((55 - 10) / 6.0)
    assert found.good_share == pytest.approx(45 / 60)
    assert found.offered_rate == pytest.approx(10.0)
    assert found.latency_ms is not None
    assert found.latency_ms.max == pytest.approx(2000)
    assert found.late_p99_ms == pytest.approx(1.0)
    assert found.stall_s == pytest.approx(2.0)


def test_moments_add_up_to_the_whole_and_show_when_it_went_wrong() -> None:
    found = report()
    assert sum(one.offered for one in found.moments) == 60
    assert sum(one.good for one in found.moments) == 45
    assert sum(one.late for one in found.moments) == 10
    assert sum(one.failed for one in found.moments) == 5
    worst = max(found.moments, key=lambda one: one.max_ms or 0.0)
    assert worst.at == pytest.approx(2.0, abs=0.25)
    busiest = max(found.moments, key=lambda one: one.in_flight)
    assert busiest.at == pytest.approx(3.75)
    assert busiest.in_flight == pytest.approx(19, abs=1.5)


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 10)), max_size=30))
def test_a_stall_is_never_longer_than_the_slowest_answer(pairs: list[tuple[float, float]]) -> None:
    samples = [Sample(at, at, at + latency) for at, latency in pairs]
    assert longest_stall(samples) <= max((sample.latency for sample in samples), default=0.0) + 1e-9


def test_an_empty_run_has_a_report_too() -> None:
    empty = report_load([], shape="trace", seconds=1.0, slo_ms=10.0, processes=1)
    assert (empty.planned, empty.latency_ms, empty.good_share) == (0, None, 0.0)
    assert "none" in dict(rows(empty))["latency"]
    assert html(empty, title="nothing")


def test_the_report_is_plain_json() -> None:
    assert msgspec.json.decode(msgspec.json.encode(report()), type=LoadReport) == report()


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.sources = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.sources += any(name in ("src", "href") for name, _ in attrs)


def test_the_page_holds_its_pictures_needs_nothing_else_and_escapes_what_it_quotes() -> None:
    page = html(report(), title="A <load>", facts=[("command", "copydesk bench load --texts '<x>'")])
    reader = Reader()
    reader.feed(page)
    assert reader.tags.count("svg") == 3
    assert reader.sources == 0
    assert "script" not in reader.tags
    assert "A &lt;load&gt;" in page
    assert "busy &amp; &lt;full&gt;" in page


def test_the_page_calls_what_was_only_refused_no_failure() -> None:
    found = report()
    assert (found.shed, found.errors) == (5, 0)
    page = html(found, title="A load")
    assert page.count("efused or failed") == 2
    assert ">failed<" not in page


def test_a_chart_is_well_formed_and_breaks_its_lines_at_gaps() -> None:
    line = Line('a "b" & <c>', [(0.0, 1.0), (1.0, 2.0), (2.0, None), (3.0, 100.0)])
    drawn = svg(Chart("<title>", "x", [line], log_y=True, level=(10.0, "top"), moment=(2.0, "then")))
    root = ElementTree.fromstring(drawn)
    space = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f"{space}polyline")) == 2
    assert len(root.findall(f"{space}circle")) == 1
    assert len(root.findall(f"{space}line[@class='mark']")) == 2


@given(st.floats(0, 1e6), st.floats(1e-3, 1e6))
def test_ticks_are_few_round_and_within(low: float, span: float) -> None:
    found = ticks(low, low + span)
    assert 2 <= len(found) <= 11
    assert all(low - 1e-6 * span <= tick <= (low + span) * (1 + 1e-9) + 1e-6 * span for tick in found)


@pytest.mark.parametrize("moment", [0.1, 4.0, 9.9])
def test_the_names_of_what_is_marked_stand_apart(moment: float) -> None:
    line = Line("l", [(0.0, 1.0), (10.0, 2.0)])
    drawn = ElementTree.fromstring(svg(Chart("t", "x", [line], level=(1.5, "level"), moment=(moment, "moment"))))
    (level, at_level), (then, at_then) = [
        (float(text.attrib["x"]), text.attrib["text-anchor"])
        for text in drawn.iter()
        if text.attrib.get("class") == "mt"
    ]
    assert {at_level, at_then} == {"start", "end"}
    begin, end = (level, then) if at_level == "start" else (then, level)
    assert end - begin > 300


def test_charts_of_nothing_and_of_zeros_are_drawn() -> None:
    for points in ([], [(0.0, 0.0)], [(0.0, None)]):
        for log_y in (True, False):
            ElementTree.fromstring(svg(Chart("t", "x", [Line("l", points)], log_y=log_y)))
