"""`copydesk up --autoscale` at its edges: a certificate for other weights, an end while pods are starting."""

from __future__ import annotations

import signal
from pathlib import Path

import psutil
import pytest

from copydesk.cli.capacity.subject import hardware_at
from copydesk.loadtest.certificate import Certificate, CurvePoint, Hardware, Interval, write_certificate
from tests.fixtures.fleet import Fleet
from tests.fixtures.tiny_model import write_tiny_model


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(write_tiny_model(tmp_path / "tiny", always_stops=True))


def certificate(path: Path, digest: str) -> str:
    made = Certificate(
        model="tiny",
        model_digest=digest,
        config_digest="c",
        hardware=Hardware(name=hardware_at("http://127.0.0.1", None).name),
        slo_ms=1000.0,
        rate=10.0,
        concurrency=4.0,
        interval=Interval(9.0, 11.0),
        curve=(CurvePoint(rate=5.0, concurrency=1.0, p50_ms=100.0, p99_ms=200.0),),
        made_at=1.0,
    )
    write_certificate(made, path)
    return str(path)


def test_a_certificate_for_other_weights_ends_the_fleet_with_its_name(tmp_path: Path, model: str) -> None:
    path = certificate(tmp_path / "capacity.json", "0" * 64)
    fleet = Fleet(tmp_path / "fleet", "--model", model, "--autoscale", "1:2", "--certificate", path)
    try:
        failed = fleet.wait_for("failed", timeout=60)
        assert (failed["name"], failed["exit_code"]) == ("autoscaler", 2)
        assert "CERTIFICATE" in "\n".join(failed["log_tail"])
        assert fleet.process.wait(60) == 2
    finally:
        fleet.stop()


def test_an_end_while_pods_are_starting_is_an_orderly_one(tmp_path: Path, model: str) -> None:
    environ = {
        "COPYDESK_AUTOSCALER_MODELS_FILE": str(tmp_path / "models.yaml"),
        "COPYDESK_AUTOSCALER_SETTLE_MS": "0",
    }
    # Its own limits make the autoscaler ask for more pods at once, and the supervisor's keep that to three.
    (tmp_path / "models.yaml").write_text("models: [{model: tiny, min_pods: 5, max_pods: 9}]")
    fleet = Fleet(tmp_path / "fleet", "--model", model, "--autoscale", "1:3", environ=environ)
    try:
        scaled = fleet.wait_for("scaled", timeout=60)
        assert (scaled["before"], scaled["pods"]) == (1, 3)
        family = psutil.Process(fleet.process.pid).children(recursive=True)
        fleet.process.send_signal(signal.SIGINT)
        stopped = fleet.wait_for("stopped", timeout=60)
        assert stopped["exit_code"] == fleet.process.wait(10) == 0
        assert not [
            event for event in fleet.events if event["event"] in ("child_killed", "child_exited", "failed")
        ]
        assert not [process for process in family if process.is_running()]
    finally:
        fleet.stop()
