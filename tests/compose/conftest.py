"""An engine, the images, and the fleet of compose.yaml, each once for all tests here."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.compose.composed_fleet import ROOT, ComposedFleet, run
from tests.compose.docker_engine import docker_engine
from tests.fixtures.nats import free_port

SERVICES = ("gateway", "eds", "autoscaler", "inference", "image-fetcher")


@pytest.fixture(scope="session")
def engine() -> Iterator[dict[str, str]]:
    """The environment in which a Docker engine answers that has the images that others made."""
    with docker_engine() as env:
        said = run(str(ROOT / "scripts" / "stand-in-images.sh"), env=env)
        yield env | dict(line.split("=", 1) for line in said.split())


@pytest.fixture(scope="session")
def composed(engine: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComposedFleet]:
    """The project with its secrets and its images built; nothing of it runs yet."""
    secrets = tmp_path_factory.mktemp("composed") / "secrets"
    run(str(ROOT / "scripts" / "compose-secrets.sh"), str(secrets), env=engine)
    fleet = ComposedFleet(engine, f"copydesk-test-{os.getpid()}", free_port(), secrets)
    began = time.monotonic()
    fleet.compose("--profile", "images", "build", "--quiet", *SERVICES)
    print(f"images built in {time.monotonic() - began:.0f} s")
    try:
        yield fleet
    finally:
        fleet.compose("--profile", "*", "down", "--volumes", "--timeout", "5")


@pytest.fixture(scope="module")
def fleet(composed: ComposedFleet) -> ComposedFleet:
    """The fleet, up."""
    began = time.monotonic()
    try:
        composed.up()
    except (AssertionError, subprocess.TimeoutExpired):
        print(composed.compose("logs", "--no-color", "--tail", "100"))
        raise
    print(f"fleet up in {time.monotonic() - began:.0f} s")
    return composed
