"""The simulated fleet: that it is one, and what the gateway's own code does with it."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from copydesk.cli.main import app
from copydesk.cli.simulate.ours import Copydesk
from copydesk.cli.simulate.result import CLAIRVOYANT, OURS, RULES, Figures, Part, simulate
from copydesk.cli.simulate.rivals import LeastKnown, Random, RoundRobin, TwoChoices
from copydesk.cli.simulate.scenario import FAILING, JOINING, LOST_ZONE, SLOW, Scenario
from copydesk.cli.simulate.world import World


def small(scenario: Scenario) -> Scenario:
    return replace(scenario, pods=60, gateways=8, slots=16, seconds=6.0, failing=min(1, scenario.failing))


def part(scenario: Scenario) -> Part:
    return simulate([scenario], 1, lambda _: None).parts[0]


def by_rule(found: Part) -> dict[str, Figures]:
    return {one.rule: one for one in found.figures}


@pytest.fixture(scope="module")
def slow() -> Part:
    return part(small(SLOW))


def test_with_slow_pods_p99_is_within_a_twentieth_of_perfect_information(slow: Part) -> None:
    assert slow.p99_to_perfect is not None
    assert slow.p99_to_perfect <= 1.05
    assert by_rule(slow).keys() == RULES.keys()


def test_rules_that_know_nothing_or_old_news_are_far_worse(slow: Part) -> None:
    found = by_rule(slow)
    for rule in ("round robin", "random", "least loaded, reports"):
        assert found[rule].p99_ms > 2 * found[OURS].p99_ms
    assert found[CLAIRVOYANT].p99_ms <= found[OURS].p99_ms


def test_a_pod_that_fails_in_a_millisecond_draws_least_loaded_traffic_and_hardly_any_of_ours() -> None:
    scenario = small(FAILING)
    ours, least = World(scenario, 1).run(Copydesk), World(scenario, 1).run(LeastKnown)
    assert least.odd > 0.3 * least.requests
    assert ours.odd < 0.01 * ours.requests
    assert ours.failed == 0


def test_cold_pods_that_join_get_little_at_first() -> None:
    scenario = small(JOINING)
    ours, two = World(scenario, 1), World(scenario, 1)
    ours_found, two_found = ours.run(Copydesk), two.run(TwoChoices)
    joined = sum(pod.requests for pod in ours.pods[scenario.pods :])
    assert 0 < joined < sum(pod.requests for pod in two.pods[scenario.pods :])
    index = int(0.99 * len(ours_found.latencies))
    assert ours_found.latencies[index] < two_found.latencies[index]


def test_a_lost_zone_costs_no_request() -> None:
    scenario = small(LOST_ZONE)
    assert World(scenario, 1).run(Copydesk).failed == 0
    assert World(scenario, 1).run(RoundRobin).failed > 0


def test_the_same_seed_gives_the_same_run_and_another_one_another() -> None:
    scenario = replace(small(SLOW), seconds=1.0)
    first, again = World(scenario, 3).run(Copydesk), World(scenario, 3).run(Copydesk)
    assert first == again
    assert first.latencies != World(scenario, 4).run(Copydesk).latencies


def test_pods_do_what_queueing_theory_says() -> None:
    """Of requests that come at random, pods below their capacity serve all, in the time that these take."""
    scenario = replace(SLOW, slow=0.0, pods=20, gateways=4, load=0.5, seconds=20.0)
    found = World(scenario, 1).run(Random)
    mean_ms = 1000 * sum(found.latencies) / len(found.latencies)
    assert mean_ms == pytest.approx(scenario.service_ms + 0.5, rel=0.05)
    assert len(found.latencies) == pytest.approx(scenario.rate * (scenario.seconds - scenario.warm), rel=0.05)


def test_what_is_never_answered_counts_as_late() -> None:
    scenario = replace(SLOW, slow=0.0, pods=4, gateways=1, load=3.0, seconds=6.0)
    found = World(scenario, 1).run(Random)
    assert len(found.latencies) > 1.5 * 4 * scenario.slots * 4.0
    assert found.latencies[-1] > 2.0


def test_the_command_prints_one_object_and_draws_a_picture(tmp_path: Path) -> None:
    file = tmp_path / "balancing.svg"
    options = ["--scenario", "slow", "--pods", "20", "--gateways", "4", "--seconds", "1", "--picture", str(file)]
    result = CliRunner().invoke(app, ["simulate", "balancing", "--json", *options])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert [one["scenario"] for one in found["parts"]] == ["slow"]
    assert {one["rule"] for one in found["parts"][0]["figures"]} == set(RULES)
    texts = {element.text for element in ET.parse(file).iter("{http://www.w3.org/2000/svg}text")}
    assert set(RULES) <= texts


def test_the_command_prints_a_table(tmp_path: Path) -> None:
    options = ["--scenario", "failing", "--pods", "20", "--gateways", "4", "--seconds", "1"]
    result = CliRunner().invoke(app, ["simulate", "balancing", *options])
    assert result.exit_code == 0
    assert "| copydesk " in result.stdout
    assert "P99 against the best rule with perfect information" in result.stdout


def test_a_scenario_that_there_is_not_is_refused_by_name() -> None:
    result = CliRunner().invoke(app, ["simulate", "balancing", "--scenario", "war"])
    assert result.exit_code == 2
    assert "war" in result.stderr
    assert "lost-zone" in result.stderr


def test_a_picture_for_a_folder_that_there_is_not_is_refused_before_anything_is_simulated(tmp_path: Path) -> None:
    picture = tmp_path / "nowhere" / "balancing.svg"
    result = CliRunner().invoke(app, ["simulate", "balancing", "--picture", str(picture)])
    assert result.exit_code == 2
    assert "there is no folder" in result.stderr
    assert "slow:" not in result.stderr
