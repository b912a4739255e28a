"""The report of a run as a page: well-formed, with the faults where they struck."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from copydesk.chaos.census import Course, Reading
from copydesk.chaos.kinds import Kind
from copydesk.chaos.outcome import sum_up
from copydesk.chaos.page import html
from copydesk.chaos.report import ChaosReport, rows
from copydesk.chaos.schedule import Strike
from copydesk.chaos.striking import Struck
from copydesk.chaos.verdict import Bars, End, judge
from copydesk.loadtest import RequestFailedError, Sample
from copydesk.loadtest.load_report import report_load
from copydesk.loadtest.pulse import Stall


def report(*, failures: int = 1, stalls: tuple[Stall, ...] = ()) -> ChaosReport:
    bad = RequestFailedError("http_503", "nobody <there>")
    samples = [Sample(t / 4, t / 4, t / 4 + 0.1, bad if t < failures else None) for t in range(240)]
    outcome = sum_up(samples, 5.0, 0, stalls)
    readings = tuple(
        Reading(at=5.0 * i, descriptors=40 + i, connections=20, threads=3, memory_bytes=90 << 20)
        for i in range(12)
    )
    freeze = Strike(at=20.0, kind=Kind.POD_FREEZE, target="pod-2", seconds=6.0)
    kill = Strike(at=30.0, kind=Kind.NATS_KILL, target="nats", seconds=0.0)
    late = Strike(at=40.0, kind=Kind.LINK_RESET, target="pod-1", seconds=0.0)
    return ChaosReport(
        url="http://127.0.0.1:8080",
        model="gec-en",
        seed=7,
        seconds=60.0,
        rate=4.0,
        deadline_ms=5000.0,
        interrupted=False,
        outcome=outcome,
        load=report_load(samples, shape="poisson 4/s", seconds=60.0, slo_ms=1000.0, processes=1),
        struck=(
            Struck(planned=freeze, began=20.5, ended=26.5),
            Struck(planned=kill, began=30.0, ended=30.0),
            Struck(planned=late, began=40.0, ended=40.0, left_out="pod-2 not in service"),
        ),
        growths=(),
        stalls=stalls,
        courses=(Course(name="gateway", pid=7, readings=readings),),
        checks=judge(outcome, (), End(in_flight=0, missing=()), Bars()),
    )


class Wellformed(HTMLParser):
    """Fails on a tag that does not match."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del tag, attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_well_formed_and_names_faults_bars_and_failures() -> None:
    page = html(report(), title="Copydesk under faults", facts=[("made", "today")])
    parser = Wellformed()
    parser.feed(page)
    assert parser.open == []
    assert "pod-freeze of pod-2: SIGSTOP of all processes of a pod" in page
    assert "left out: pod-2 not in service" in page
    assert "MISSED: availability" in page
    assert "nobody &lt;there&gt;" in page


def test_each_picture_shows_the_faults_that_struck_and_no_other() -> None:
    page = html(report(), title="t")
    pictures = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(pictures) == 6
    for picture in pictures:
        assert re.findall(r'<rect class="(\w+)".*?<title>(.*?)</title>', picture) == [
            ("band", "pod-freeze pod-2"),
            ("low", "nats-kill nats"),
        ]


def test_a_fault_is_drawn_where_it_struck() -> None:
    page = html(report(), title="t")
    picture = re.findall(r"<svg.*?</svg>", page, re.DOTALL)[1]
    found = re.search(r'<rect class="band" x="([\d.]+)" y="\d+" height="\d+" width="([\d.]+)"', picture)
    assert found is not None
    left, width = map(float, found.groups())
    whole = (760 - 62 - 18) / 59.75
    assert abs(left - (62 + 20.5 * whole)) < 1.0
    assert abs(width - 6.0 * whole) < 1.0


def test_the_table_says_what_was_held_and_what_was_not() -> None:
    held = dict(rows(report(failures=0)))
    assert held["answered"] == "240 of 240 rightly in 5000 ms"
    assert held["longest outage"] == "none"
    assert "held: availability" in held
    missed = dict(rows(report(failures=3)))
    assert missed["else"] == "3 refused"
    assert missed["longest outage"].startswith("0.75 s")
    assert "MISSED: availability" in missed
    assert not report(failures=3).holds
    assert report(failures=0).holds


def test_moments_in_which_the_machine_stood_still_are_told_apart_and_excuse_nothing() -> None:
    assert dict(rows(report()))["machine"] == "never stood still for 100 ms"
    stood = report(failures=3, stalls=(Stall(0.3, 0.2), Stall(50.0, 1.5)))
    assert dict(rows(stood))["machine"].startswith(
        "stood still 2 times, 1.70 s in all, longest 1.50 s from second 50"
    )
    assert stood.outcome.amid_stalls == 1
    assert not stood.holds
    assert html(stood, title="t").count("<title>the machine stood still</title>") == 12
