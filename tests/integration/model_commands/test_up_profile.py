"""`copydesk up --profile`: a fleet of real processes that runs what a profile says."""

from __future__ import annotations

import datetime
import json
import urllib.request
from pathlib import Path

import pytest

from copydesk.common.profile import EnginePart, ModelPart, PrecisionPart, Profile, PromptPart, write_profile
from copydesk.inference.checkpoint import read_digest
from tests.fixtures.fleet import READY_SECONDS, Fleet
from tests.fixtures.tiny_model import write_tiny_model


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    directory = write_tiny_model(tmp_path / "letters", always_stops=True)
    path = tmp_path / "letters.yaml"
    write_profile(
        Profile(
            model=ModelPart(name="some-letters", directory="letters", digest=read_digest(directory)),
            prompt=PromptPart(template="chat_template.jinja", digest="ab" * 32),
            precision=PrecisionPart(dtype="float32"),
            engine=EnginePart(slots=5, draft=False, threads=1),
            created_at=datetime.datetime(2026, 11, 30, tzinfo=datetime.UTC),
            tool="copydesk",
        ),
        path,
    )
    return path


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return bytes(answer.read())


def test_a_fleet_runs_what_a_profile_says(profile: Path, tmp_path: Path) -> None:
    fleet = Fleet(tmp_path / "fleet", "--profile", str(profile), "--pods", "1", "--no-show")
    try:
        started = fleet.wait_for("starting", timeout=READY_SECONDS)
        assert (started["model"], started["threads"]) == ("some-letters", 1)
        fleet.wait_for("ready", timeout=READY_SECONDS)
        (pod,) = json.loads(get(f"{fleet.url}/v1/fleet"))["pods"]
        assert pod["capacity"] == 5
        metrics = get(f"{fleet.url}/metrics").decode()
        digest = read_digest(tmp_path / "letters")
        assert f'copydesk_gateway_expected_weights{{model="some-letters",digest="{digest}"}} 1\n' in metrics
        assert "copydesk_gateway_pods_of_other_weights 0\n" in metrics
    finally:
        assert fleet.stop() == 0
