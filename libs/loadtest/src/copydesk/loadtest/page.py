"""A load report as one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape

from copydesk.loadtest.chart import STYLE, Chart, Line, svg
from copydesk.loadtest.load_report import LoadReport, Moment

_STYLE = (
    ":root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:800px;margin:2rem auto;"
    "padding:0 1rem}table{border-collapse:collapse;margin:1rem 0}td{padding:.15rem 1.5rem .15rem 0;"
    "vertical-align:top}td:first-child{white-space:nowrap}td+td{font-variant-numeric:tabular-nums}"
    "code{overflow-wrap:anywhere}svg{margin:1rem 0}"
)


def html(report: LoadReport, *, title: str, facts: Sequence[tuple[str, str]] = ()) -> str:
    """Return the page; `facts` are shown above the figures, such as when and with which command it was made."""
    charts = "\n".join(svg(chart, standalone=False) for chart in charts_of(report))
    return document(title, table(facts), table(rows(report)), charts, _failures(report))


def document(title: str, *parts: str) -> str:
    """Return a page of `parts`, which are HTML, with the style that tables and charts need."""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><style>{_STYLE}{STYLE}</style>'
        f"</head>\n<body><h1>{escape(title)}</h1>\n" + "\n".join(parts) + "</body></html>\n"
    )


def rows(report: LoadReport) -> list[tuple[str, str]]:
    """Return the figures of a report with their names, for a table."""
    latency = report.latency_ms
    shown = "none" if latency is None else (
        f"P50 {latency.p50:.1f}  P90 {latency.p90:.1f}  P99 {latency.p99:.1f}  P99.9 {latency.p999:.1f}  "
        f"max {latency.max:.1f} ms"
    )  # fmt: skip
    return [
        ("load", f"{report.shape}, {report.seconds:.1f} s, {report.offered_rate:.1f} requests/s"),
        ("requests", f"{report.planned}: {report.ok} ok, {report.shed} refused, {report.errors} failed"),
        ("goodput", f"{report.goodput:.1f}/s within {report.slo_ms:g} ms, {report.good_share:.2%} of all"),
        ("latency", shown),
        ("longest stall", f"{report.stall_s:.2f} s without an answer"),
        ("generator", f"{_processes(report.processes)}, late by P99 {report.late_p99_ms:.1f} ms"),
    ]


def _processes(count: int) -> str:
    return "1 process" if count == 1 else f"{count} processes"


def charts_of(report: LoadReport) -> list[Chart]:
    """Return latency, requests and requests in flight over time."""
    steps, seconds = report.moments, report.seconds / len(report.moments)
    level = (report.slo_ms, f"{report.slo_ms:g} ms")
    latency = [
        _line("max", steps, lambda one: one.max_ms),
        _line("P99", steps, lambda one: one.p99_ms),
        _line("P50", steps, lambda one: one.p50_ms),
    ]
    rates = [
        _line("offered", steps, lambda one: one.offered / seconds),
        _line("late", steps, lambda one: one.late / seconds),
        _line(f"within {report.slo_ms:g} ms", steps, lambda one: one.good / seconds),
        _line("refused or failed", steps, lambda one: one.failed / seconds),
    ]
    x = "second in which requests were due"
    return [
        Chart("Latency, ms", x, latency, log_y=True, level=level),
        Chart("Requests a second", x, rates),
        Chart("Requests in flight", "second", [_line("in flight", steps, lambda one: one.in_flight)]),
    ]


def _line(name: str, moments: Sequence[Moment], of: Callable[[Moment], float | None]) -> Line:
    return Line(name, [(one.at, of(one)) for one in moments])


def table(pairs: Iterable[tuple[str, str]]) -> str:
    """Return names and what is to be said of them as a table; nothing where there are none."""
    cells = "".join(f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in pairs)
    return f"<table>{cells}</table>" if cells else ""


def _failures(report: LoadReport) -> str:
    if not report.failures:
        return ""
    pairs = ((f"{one.count} {one.kind}", " | ".join(one.messages)) for one in report.failures)
    return f"<h2>Refused or failed</h2>{table(pairs)}\n"
