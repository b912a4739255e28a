"""A run as one HTML file that needs nothing else: figures, bars, and the faults on the time line of the load."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from copydesk.chaos.census import Course, Reading
from copydesk.chaos.kinds import SHAPES
from copydesk.chaos.report import ChaosReport, rows
from copydesk.chaos.striking import Struck
from copydesk.loadtest.chart import Band, Chart, Line, svg
from copydesk.loadtest.page import charts_of, document, table

MOST_LINES = 4
MIB = 2.0**20


def html(report: ChaosReport, *, title: str, facts: Sequence[tuple[str, str]] = ()) -> str:
    """Return the page; `facts` are shown above the figures."""
    bands = [band(one) for one in report.struck if not one.left_out]
    bands += [Band(one.at, one.end, "the machine stood still", low=True) for one in report.stalls]
    charts = [*charts_of(report.load), *_courses(report)]
    pictures = "\n".join(svg(replace(chart, bands=bands), standalone=False) for chart in charts)
    faults = [(_when(one), _what(one)) for one in report.struck]
    legend = (
        "<p>Shaded: faults of a pod, or of the way to it. Along the axis: those of NATS, discovery and so on.</p>"
    )
    return document(
        title,
        table(facts),
        table(rows(report)),
        legend if bands else "",
        pictures,
        f"<h2>Faults</h2>{table(faults)}" if faults else "",
        _failures(report),
    )


def band(struck: Struck) -> Band:
    """Return what marks a fault in a chart."""
    pods = SHAPES[struck.planned.kind].track.value == "pods"
    return Band(struck.began, struck.ended, f"{struck.planned.kind} {struck.planned.target}", low=not pods)


def _when(struck: Struck) -> str:
    if struck.left_out or struck.planned.seconds == 0:
        return f"{struck.began:.1f} s"
    return f"{struck.began:.1f} to {struck.ended:.1f} s"


def _what(struck: Struck) -> str:
    kind, target = struck.planned.kind, struck.planned.target
    said = f"{kind} of {target}: {SHAPES[kind].words}"
    return f"{said} (left out: {struck.left_out})" if struck.left_out else said


def _courses(report: ChaosReport) -> list[Chart]:
    drawn: tuple[tuple[str, Callable[[Reading], float]], ...] = (
        ("Resident memory, MiB", lambda one: one.memory_bytes / MIB),
        ("File descriptors", lambda one: float(one.descriptors)),
        ("Threads", lambda one: float(one.threads)),
    )
    return [
        Chart(title, "second", [_line(course, of) for course in _widest(report.courses, of)])
        for title, of in drawn
    ]


def _widest(courses: Sequence[Course], of: Callable[[Reading], float]) -> list[Course]:
    """Choose the processes whose value changed the most; all of them would hide each other."""

    def span(course: Course) -> float:
        values = [of(reading) for reading in course.readings]
        return max(values) - min(values)

    return sorted(courses, key=span, reverse=True)[:MOST_LINES]


def _line(course: Course, of: Callable[[Reading], float]) -> Line:
    return Line(course.name, [(reading.at, of(reading)) for reading in course.readings])


def _failures(report: ChaosReport) -> str:
    pairs = [(f"{one.count} {one.kind}", " | ".join(one.messages)) for one in report.load.failures]
    return f"<h2>Refused or failed</h2>{table(pairs)}\n" if pairs else ""
