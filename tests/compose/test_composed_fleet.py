"""The fleet of compose.yaml serves, grows, loses parts without losing requests, and ends when it is told to.

The tests of this file share one fleet and stand in its order: the last one ends it.
"""

from __future__ import annotations

import json
import signal
import time
from typing import Any

import pytest

from tests.compose.composed_fleet import ComposedFleet, eventually

DOWN_SECONDS = 15.0
SERVICES = ("nats", "redis", "eds", "inference", "autoscaler", "gateway")

pytestmark = [pytest.mark.compose, pytest.mark.timeout(900)]

ASK_NATS = """
import socket
with socket.create_connection(("nats", 4222), 5) as nats:
    nats.recv(4096)
    nats.sendall(b'CONNECT {"verbose":false}\\r\\nPING\\r\\n')
    print(nats.recv(4096).decode())
"""


def test_a_text_is_corrected(fleet: ComposedFleet) -> None:
    assert fleet.correct("She go to school every days.") == "She goes to school every day."


def test_who_has_no_key_is_told_so(fleet: ComposedFleet) -> None:
    assert fleet.ask("/v1/correct", {"text": "He go."}, key=None).status == 401


def test_who_has_no_token_is_refused_by_nats(fleet: ComposedFleet) -> None:
    assert "Authorization Violation" in fleet.compose("exec", "-T", "eds", "python", "-c", ASK_NATS)


def test_both_pods_are_found(fleet: ComposedFleet) -> None:
    fleet.expect_pods(2)
    names = {fleet.inspect(container)["Config"]["Hostname"] for container in fleet.containers("inference")}
    assert {pod.rpartition("-")[0] for pod in fleet.ready_pods()} == names


def test_the_gateway_counts_in_redis_and_is_watched_with_a_key_of_its_own(fleet: ComposedFleet) -> None:
    metrics = fleet.ask("/metrics", key="gateway_metrics_key")
    assert metrics.status == 200
    assert b"\ncopydesk_gateway_redis_up 1\n" in metrics.body


def test_the_autoscaler_sees_the_fleet_and_touches_nothing(fleet: ComposedFleet) -> None:
    def last() -> dict[str, Any]:
        log = "/var/lib/copydesk/autoscaler/decisions.jsonl"
        return dict(json.loads(fleet.compose("exec", "-T", "autoscaler", "tail", "-n", "1", log)))

    eventually("a decision about two pods", lambda: last()["inputs"]["ready"] == 2)
    assert last()["policy"] == "dry-run"
    assert len(fleet.containers("inference")) == 2


def test_the_model_was_prepared_with_progress_in_the_log(fleet: ComposedFleet) -> None:
    (container,) = fleet.containers("model")
    assert fleet.inspect(container)["State"]["ExitCode"] == 0
    lines = fleet.compose("logs", "--no-color", "--no-log-prefix", "model").splitlines()
    # Some versions of compose put control characters before a line.
    events = [json.loads(line[line.index("{") :])["event"] for line in lines if "{" in line]
    assert events.count("model_progress") > 5
    assert events[-1] == "model_ready"


@pytest.mark.parametrize("service", SERVICES)
def test_its_containers_can_do_little(fleet: ComposedFleet, service: str) -> None:
    for container in fleet.containers(service):
        found = fleet.inspect(container)
        host = found["HostConfig"]
        assert found["Config"]["User"] == "10001:10001"
        assert host["ReadonlyRootfs"]
        assert host["CapDrop"] == ["ALL"]
        assert host["SecurityOpt"] == ["no-new-privileges:true"]
        assert host["Memory"] > 0
        assert host["NanoCpus"] > 0
        assert host["PidsLimit"] > 0


def test_only_the_gateway_can_be_reached_from_here(fleet: ComposedFleet) -> None:
    for service in SERVICES:
        for container in fleet.containers(service):
            bound = [
                port
                for ports in fleet.inspect(container)["NetworkSettings"]["Ports"].values()
                for port in ports or ()
            ]
            assert [port["HostIp"] for port in bound] == (["127.0.0.1"] if service == "gateway" else [])


def test_secrets_are_in_no_container_s_settings(fleet: ComposedFleet) -> None:
    secrets = [fleet.secret(name) for name in ("nats_token", "rpc_token", "redis_password", "gateway_api_key")]
    for service in SERVICES:
        for container in fleet.containers(service):
            shown = json.dumps(fleet.inspect(container))
            assert not [secret for secret in secrets if secret in shown]


def test_a_third_pod_is_discovered(fleet: ComposedFleet) -> None:
    fleet.up(pods=3)
    fleet.expect_pods(3)


def test_a_pod_that_is_killed_costs_no_request(fleet: ComposedFleet) -> None:
    container = fleet.containers("inference")[0]
    with fleet.under_requests() as traffic:
        fleet.docker("kill", container)
        fleet.more_answers(traffic)
        fleet.expect_pods(2)
        fleet.docker("start", container)
        fleet.expect_pods(3)
    assert traffic.failed == []


def test_a_pod_that_is_stopped_drains(fleet: ComposedFleet) -> None:
    container = fleet.containers("inference")[0]
    with fleet.under_requests() as traffic:
        fleet.docker("stop", "--time", "45", container)
        fleet.more_answers(traffic)
    assert fleet.inspect(container)["State"]["ExitCode"] == 0
    assert traffic.failed == []


@pytest.mark.parametrize("service", ["eds", "autoscaler"])
def test_what_has_just_started_ends_when_it_is_told_to(fleet: ComposedFleet, service: str) -> None:
    """Python takes a second to say what to do with SIGTERM; until then it would be lost on the first process."""
    (container,) = fleet.containers(service)
    fleet.docker("restart", container)
    fleet.docker("stop", "--time", "30", container)
    code = fleet.inspect(container)["State"]["ExitCode"]
    fleet.docker("start", container)
    assert code in (0, 128 + signal.SIGTERM)


def test_nats_may_be_restarted_under_requests(fleet: ComposedFleet) -> None:
    with fleet.under_requests() as traffic:
        fleet.compose("restart", "--timeout", "5", "nats")
        fleet.more_answers(traffic)
        eventually("discovery is back", lambda: fleet.ask("/v1/fleet").json["discovery_connected"])
        fleet.more_answers(traffic)
    assert traffic.failed == []


def test_redis_may_be_lost_under_requests(fleet: ComposedFleet) -> None:
    with fleet.under_requests() as traffic:
        fleet.compose("kill", "redis")
        fleet.more_answers(traffic)
        fleet.compose("start", "redis")
        fleet.more_answers(traffic)
    assert traffic.failed == []


def test_it_is_down_within_fifteen_seconds(fleet: ComposedFleet) -> None:
    began = time.monotonic()
    fleet.compose("down")
    took = time.monotonic() - began
    print(f"down in {took:.1f} s")
    assert fleet.compose("ps", "--all", "--quiet").split() == []
    assert took < DOWN_SECONDS
