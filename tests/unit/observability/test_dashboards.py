"""The dashboards: what is in the files is what the code says, and Grafana can lay it out."""

from __future__ import annotations

import itertools
import json

import pytest
import yaml

from deploy.grafana.build import DASHBOARDS, FOLDER, files
from deploy.grafana.panels import COLUMNS, DATASOURCE, Dashboard, render
from tests.fixtures.promql import expressions, rules

PROVISIONING = FOLDER.parent / "provisioning"


def test_the_files_are_what_the_code_makes() -> None:
    found = {path.name: path.read_text() for path in FOLDER.iterdir()}
    assert found == files(), "run python -m deploy.grafana.build"


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.name)
def test_panels_have_numbers_of_their_own_and_lie_beside_one_another(dashboard: Dashboard) -> None:
    panels = render(dashboard)["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [panel["gridPos"] for panel in panels]
    assert all(place["x"] + place["w"] <= COLUMNS for place in places)
    for one, other in itertools.combinations(places, 2):
        apart = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert apart or one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.name)
def test_every_panel_says_what_it_shows(dashboard: Dashboard) -> None:
    titles = [panel.title for row in dashboard.rows for panel in row.panels]
    assert len(set(titles)) == len(titles)
    assert all(panel.about and panel.queries for row in dashboard.rows for panel in row.panels)


def test_recorded_series_that_are_asked_for_are_recorded() -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    asked = {use.metric for expression in expressions() for use in expression.uses() if ":" in use.metric}
    assert asked == recorded


def test_grafana_is_given_the_datasource_that_the_panels_name_and_the_folder_of_the_dashboards() -> None:
    (source,) = yaml.safe_load((PROVISIONING / "datasources" / "prometheus.yml").read_text())["datasources"]
    assert {"type": source["type"], "uid": source["uid"]} == DATASOURCE
    (provider,) = yaml.safe_load((PROVISIONING / "dashboards" / "copydesk.yml").read_text())["providers"]
    assert provider["options"]["path"].endswith("/dashboards")
    assert all(json.loads(text)["uid"].startswith("copydesk-") for text in files().values())
