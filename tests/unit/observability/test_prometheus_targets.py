"""Prometheus reads what compose.yaml runs: by names, ports and keys that are there."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.fixtures.promql import ALERTS, TOP, expressions

CONFIG: dict[str, Any] = yaml.safe_load(ALERTS.with_name("prometheus.yml").read_text())
COMPOSE: dict[str, Any] = yaml.safe_load((TOP / "compose.yaml").read_text())
JOBS: dict[str, dict[str, Any]] = {job["job_name"]: job for job in CONFIG["scrape_configs"]}
FOUND_BY_NAME = sorted(name for name, job in JOBS.items() if "dns_sd_configs" in job)


@pytest.mark.parametrize("name", FOUND_BY_NAME)
def test_a_target_is_a_service_and_its_port_that_of_its_image(name: str) -> None:
    (found,) = JOBS[name]["dns_sd_configs"]
    (service,) = found["names"]
    image = (TOP / COMPOSE["services"][service]["build"]["dockerfile"]).read_text()
    (port,) = re.findall(r"\bCOPYDESK_(?:GATEWAY_PORT|\w+_METRICS_PORT)=(\d+)", image)
    assert found["port"] == int(port)


def test_all_services_are_read_and_prometheus_itself() -> None:
    assert {*FOUND_BY_NAME} == {"gateway", "eds", "autoscaler", "inference", "imagefetcher"}
    assert set(JOBS) == {*FOUND_BY_NAME, "prometheus"}


def test_jobs_that_are_asked_for_by_name_exist() -> None:
    asked = {job for expression in expressions() for job in re.findall(r'\bjob="(\w+)"', expression.text)}
    assert asked
    assert asked <= set(JOBS)


def test_the_key_for_the_metrics_of_gateways_is_a_secret_that_prometheus_has() -> None:
    key = JOBS["gateway"]["authorization"]["credentials_file"]
    assert key.removeprefix("/run/secrets/") in COMPOSE["services"]["prometheus"]["secrets"]


def test_prometheus_and_grafana_find_their_files_where_they_are_mounted() -> None:
    assert "./deploy/prometheus:/etc/prometheus:ro" in COMPOSE["services"]["prometheus"]["volumes"]
    assert "--config.file=/etc/prometheus/prometheus.yml" in COMPOSE["services"]["prometheus"]["command"]
    assert all((ALERTS.parent / file).exists() for file in CONFIG["rule_files"])
    mounts = dict(volume.split(":")[:2] for volume in COMPOSE["services"]["grafana"]["volumes"])
    provisioned = (TOP / "deploy/grafana/provisioning/dashboards/copydesk.yml").read_text()
    (provider,) = yaml.safe_load(provisioned)["providers"]
    assert mounts["./deploy/grafana/dashboards"] == provider["options"]["path"]
    assert mounts["./deploy/grafana/provisioning"] == "/etc/grafana/provisioning"
