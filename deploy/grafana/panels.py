"""Dashboards as data: what is shown, and how Grafana wants to be told.

A dashboard is rows of panels, a panel is queries in one unit. Where panels stand, their numbers, and what all have
in common follow from that. The JSON is Grafana's own model of a dashboard, schema 39, which Grafana 10.4 and newer
read:
https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

DATASOURCE = {"type": "prometheus", "uid": "copydesk-prometheus"}
"""The one that is provisioned beside the dashboards."""

COLUMNS = 24
"""What Grafana divides the width of a page into."""

PANEL_HEIGHT = 8
STAT_HEIGHT = 4


class Kind(enum.StrEnum):
    """How a panel shows its queries: lines over time, areas upon each other, or the last number."""

    LINES = "lines"
    STACK = "stack"
    STAT = "stat"


class Unit(enum.StrEnum):
    """Grafana's names of the units that occur."""

    NONE = "short"
    PER_SECOND = "reqps"
    TOKENS = "tokens/s"
    SHARE = "percentunit"
    SECONDS = "s"
    BYTES = "bytes"
    BYTES_PER_SECOND = "Bps"
    YES_NO = "bool_yes_no"


@dataclass(frozen=True, slots=True)
class Query:
    """A PromQL expression, and what its lines are called (`{{label}}` stands for a label's value)."""

    expr: str
    legend: str


@dataclass(frozen=True, slots=True)
class Line:
    """A level that is drawn red from there on: an objective, a limit."""

    at: float


@dataclass(frozen=True, slots=True)
class Panel:
    """What is shown together; `about` says what it means, and what to do if it looks bad."""

    title: str
    about: str
    unit: Unit
    queries: tuple[Query, ...]
    kind: Kind = Kind.LINES
    limit: Line | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """Panels side by side, under a heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """A variable of the page: the values that `label` has in `metric`, of which several can be chosen."""

    name: str
    metric: str
    label: str


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A page; `name` is that of its file and its address."""

    name: str
    title: str
    about: str
    rows: tuple[Row, ...]
    choices: tuple[Choice, ...] = ()

    def queries(self) -> Iterator[Query]:
        """Every query that there is."""
        for row in self.rows:
            for panel in row.panels:
                yield from panel.queries


def render(dashboard: Dashboard) -> dict[str, Any]:
    """Return what Grafana reads."""
    return {
        "uid": f"copydesk-{dashboard.name}",
        "title": dashboard.title,
        "description": dashboard.about,
        "tags": ["copydesk"],
        "schemaVersion": 39,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,
        "timezone": "browser",
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "links": [{"type": "dashboards", "title": "Copydesk", "tags": ["copydesk"], "keepTime": True}],
        "templating": {"list": [_variable(choice) for choice in dashboard.choices]},
        "panels": list(_panels(dashboard.rows)),
    }


def _panels(rows: tuple[Row, ...]) -> Iterator[dict[str, Any]]:
    number = top = 0
    for row in rows:
        number += 1
        place = {"h": 1, "w": COLUMNS, "x": 0, "y": top}
        yield {"id": number, "type": "row", "title": row.title, "collapsed": False, "gridPos": place, "panels": []}
        top += 1
        width = COLUMNS // len(row.panels)
        height = STAT_HEIGHT if all(panel.kind is Kind.STAT for panel in row.panels) else PANEL_HEIGHT
        for index, panel in enumerate(row.panels):
            number += 1
            yield _panel(panel, number, {"h": height, "w": width, "x": index * width, "y": top})
        top += height


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    stat = panel.kind is Kind.STAT
    return {
        "id": number,
        "type": "stat" if stat else "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": DATASOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": _look(panel), "overrides": []},
        "options": _STAT_OPTIONS if stat else _LINE_OPTIONS,
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": DATASOURCE,
                "expr": query.expr,
                "legendFormat": query.legend,
                "instant": stat,
                "range": not stat,
            }
            for index, query in enumerate(panel.queries)
        ],
    }


_STAT_OPTIONS = {
    "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    "textMode": "value_and_name",
    "colorMode": "value",
    "graphMode": "none",
}

_LINE_OPTIONS = {
    "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
    "tooltip": {"mode": "multi", "sort": "desc"},
}


def _look(panel: Panel) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.limit is not None:
        steps.append({"color": "red", "value": panel.limit.at})
    look: dict[str, Any] = {"unit": panel.unit.value, "thresholds": {"mode": "absolute", "steps": steps}}
    if panel.kind is Kind.STAT:
        return look
    stacked = panel.kind is Kind.STACK
    look["min"] = 0
    look["custom"] = {
        "drawStyle": "line",
        "lineWidth": 1,
        "fillOpacity": 40 if stacked else 0,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
        "thresholdsStyle": {"mode": "off" if panel.limit is None else "line"},
    }
    return look


def _variable(choice: Choice) -> dict[str, Any]:
    query = f"label_values({choice.metric}, {choice.label})"
    return {
        "name": choice.name,
        "type": "query",
        "datasource": DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": "A"},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }
