"""A fleet of pods whose capacity was searched for: a certificate made by `copydesk.loadtest`, into the command."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from copydesk.cli.main import app
from copydesk.loadtest.certificate import Certificate, Hardware, write_certificate
from copydesk.loadtest.examination import certify, examine, scope_of
from copydesk.loadtest.ground import Scouted, Timing
from copydesk.loadtest.record import Record, Subject
from copydesk.loadtest.search import Found
from copydesk.loadtest.verdict import Rules
from copydesk.simulator.fluid import Fluid
from copydesk.simulator.profile import Profile
from tests.unit.loadtest.queue_server import QueueGround
from tests.unit.loadtest.virtual_time import run_virtually


def exponential(rng: random.Random) -> float:
    return rng.expovariate(1 / 0.02)


@pytest.fixture(scope="module")
def certificate() -> Certificate:
    """Of two pods that are a queue of four slots, 20 ms each, searched in virtual time."""
    scouted = Scouted(best_ms=18.0, alone_ms=20.0, batch_rate=200.0)
    record = Record(
        subject=Subject(
            url="http://here",
            model="gec-en",
            model_digest="d",
            pods=2,
            config={"slots": "4"},
            hardware=Hardware(name="cpu"),
        ),
        rules=Rules(slo_ms=200.0),
        timing=Timing(seconds=10),
        scope=scope_of(scouted, limit=1e6, precision=0.03, processes=2),
        scouted=scouted,
        seed=3,
    )
    record, found = run_virtually(
        examine(record, QueueGround(4, exponential), on_step=lambda _: None, on_trial=lambda *_: None)
    )
    assert isinstance(found, Found)
    return certify(record, found, 12.0)


@pytest.fixture
def path(certificate: Certificate, tmp_path: Path) -> Path:
    path = tmp_path / "capacity.json"
    write_certificate(certificate, path)
    return path


def simulate(path: Path, *arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(
        app, ["simulate", "fleet", "--trace", "step", "--peak", "5000", "--certificate", str(path), *arguments]
    )
    return result.exit_code, result.stdout, result.stderr


def test_a_fluid_of_it_is_as_quick_as_it_was_measured(certificate: Certificate) -> None:
    profile = Profile.of(certificate)
    for point in certificate.curve:
        flow = Fluid(profile).step(10.0 * point.rate / certificate.pods, 10.0)
        assert flow.shed == 0.0
        assert flow.p99_ms == pytest.approx(point.p99_ms, rel=0.02)
    assert profile.most >= certificate.rate_per_pod
    assert np.all(np.diff(profile.rates) >= 0.0)


def test_a_fleet_is_simulated_by_it(path: Path, certificate: Certificate) -> None:
    code, out, _ = simulate(path, "--json", "--model", "gec-en", "--hardware", "cpu")
    assert code == 0
    found = json.loads(out)
    assert found["pod_rate"] == pytest.approx(certificate.rate_per_pod, abs=0.01)
    assert found["slo_ms"] == 200.0
    least = found["policies"]["clairvoyant"]
    assert least["slo_violation_seconds"] == 0
    assert least["pods_most"] == pytest.approx(5000.0 / certificate.rate_per_pod, rel=0.1)
    assert found["policies"]["copydesk"]["slo_violation_seconds"] <= 60


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(["--model", "other"], "other"), (["--hardware", "H100"], "H100")],
)
def test_for_another_model_or_other_hardware_it_ends_with_code_2(
    path: Path, arguments: list[str], says: str
) -> None:
    code, out, err = simulate(path, *arguments)
    assert code == 2
    assert out == ""
    assert says in err
    assert "capacity.json" in err.replace("\n", "")
