"""The alerts: each leads to somebody who knows what to do, and burn rates are what they are said to be."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from copydesk.gateway.history import WORK
from copydesk.gateway.metrics import LATENCY_BUCKETS
from tests.fixtures.promql import ALERTS, TOP, alerts, promtool, rules

SEVERITIES = {"page", "ticket"}
BURN_RATES = {("1h", "5m"): 14.4, ("6h", "30m"): 6.0, ("1d", "2h"): 3.0, ("3d", "6h"): 1.0}
BUDGETS = {"failed": 0.0001, "slow": 0.01}
SECONDS = {"1h": 3600, "6h": 21_600, "1d": 86_400, "3d": 259_200}

_CONDITION = re.compile(
    r"copydesk:requests_(?P<what>\w+):ratio(?P<long>\w+) > (?P<limit>(?P<rate>[\d.]+) \* (?P<budget>[\d.]+))\s+"
    r"and copydesk:requests_(?P=what):ratio(?P<short>\w+) > (?P=limit)\s+"
    r"and avg_over_time\(copydesk:requests_(?P=what):rate5m\[(?P=long)\]\) \* (?P<seconds>\d+) >= 10"
)
"""A burn rate: the ratios over both windows beyond the limit, and ten bad requests."""


def anchors(page: Path) -> set[str]:
    """The headings of a page, as links to them have them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: str(alert["alert"]))
def test_each_alert_says_what_is_the_matter_and_where_it_stands_what_to_do(alert: dict[str, object]) -> None:
    labels, annotations = alert["labels"], alert["annotations"]
    assert isinstance(labels, dict)
    assert isinstance(annotations, dict)
    assert labels["severity"] in SEVERITIES
    assert annotations["summary"]
    assert annotations["description"]
    page, _, anchor = annotations["runbook_url"].partition("#")
    assert anchor == str(alert["alert"]).lower()
    assert anchor in anchors(TOP / page)


def test_the_page_of_alerts_has_no_section_for_one_that_does_not_exist() -> None:
    sections = re.findall(r"^#+ (Copydesk\w+)$", (TOP / "docs" / "alerts.md").read_text(), re.MULTILINE)
    assert sorted(sections) == sorted(alert["alert"] for alert in alerts())


def test_limits_are_burn_rates_times_budgets_and_each_window_has_its_own() -> None:
    found = [match.groupdict() for alert in alerts() for match in _CONDITION.finditer(alert["expr"])]
    for condition in found:
        assert float(condition["budget"]) == BUDGETS[condition["what"]]
        assert float(condition["rate"]) == BURN_RATES[condition["long"], condition["short"]]
        assert int(condition["seconds"]) == SECONDS[condition["long"]]
    windows = sorted((condition["what"], condition["long"]) for condition in found)
    assert windows == sorted((what, long) for what in BUDGETS for long, _ in BURN_RATES)


def test_each_ratio_is_over_the_window_in_its_name() -> None:
    for rule in rules():
        window = re.search(r":ratio(\w+)$", rule.get("record", ""))
        if window is not None and window[1] != "5m":
            assert set(re.findall(r"\[(\w+)\]", rule["expr"])) == {window[1]}, rule["record"]


def test_objectives_count_all_routes_of_work_and_latency_has_a_bucket_at_one_second() -> None:
    (answered,) = (rule for rule in rules() if rule.get("record") == "copydesk:requests_answered:rate5m")
    (routes,) = re.findall(r'route=~"([^"]+)"', answered["expr"])
    assert set(routes.split("|")) == WORK
    assert 1.0 in LATENCY_BUCKETS


def test_promtool_accepts_the_rules() -> None:
    done = subprocess.run([promtool(), "check", "rules", str(ALERTS)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_the_configuration() -> None:
    config = str(ALERTS.with_name("prometheus.yml"))
    command = [promtool(), "check", "config", "--syntax-only", config]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_alerts_fire_when_they_should_and_end_when_it_is_over() -> None:
    cases = Path(__file__).with_name("alerts.test.yml")
    done = subprocess.run(
        [promtool(), "test", "rules", cases.name], capture_output=True, text=True, cwd=cases.parent, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
