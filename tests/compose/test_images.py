"""What the images are like: small where they can be, without torch where it is not needed, and nobody's root."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.compose.composed_fleet import ComposedFleet

BASE = "python:3.11-slim-bookworm"
SMALL = ("gateway", "eds", "autoscaler")
ALL = (*SMALL, "image-fetcher", "inference")
MOST_BYTES = 150_000_000

pytestmark = pytest.mark.compose


def described(composed: ComposedFleet, image: str) -> dict[str, Any]:
    (found,) = json.loads(composed.docker("image", "inspect", image))
    assert isinstance(found, dict)
    return found


def ours(name: str) -> str:
    return f"ghcr.io/copydesk/{name}:0.1.0"


def output(composed: ComposedFleet, image: str, *command: str) -> str:
    """Run a command in a container of its own, as the image would have it."""
    program, *rest = command
    return composed.docker("run", "--rm", "--network", "none", "--entrypoint", program, image, *rest)


@pytest.mark.parametrize("name", SMALL)
def test_what_needs_no_model_is_small(composed: ComposedFleet, name: str) -> None:
    size = described(composed, ours(name))["Size"] - described(composed, BASE)["Size"]
    print(f"{name}: {size / 1e6:.0f} MB above the base")
    assert size < MOST_BYTES


@pytest.mark.parametrize("name", [*SMALL, "image-fetcher"])
def test_there_is_no_torch_where_no_model_runs(composed: ComposedFleet, name: str) -> None:
    code = "import importlib.metadata as m; print(*(d.name.lower() for d in m.distributions()))"
    found = set(output(composed, ours(name), "python", "-c", code).split())
    assert "copydesk-common" in found
    assert not found & {"torch", "transformers", "tokenizers", "numpy", "vllm", "copydesk-inference"}


@pytest.mark.parametrize("name", ALL)
def test_it_runs_as_nobody_in_particular(composed: ComposedFleet, name: str) -> None:
    assert described(composed, ours(name))["Config"]["User"] == "10001:10001"
    assert output(composed, ours(name), "python", "-c", "import os; print(os.getuid(), os.getgid())").split() == [
        "10001",
        "10001",
    ]


@pytest.mark.parametrize("name", ALL)
def test_the_service_is_the_first_process_and_says_how_it_is(composed: ComposedFleet, name: str) -> None:
    config = described(composed, ours(name))["Config"]
    assert config["Entrypoint"] == ["python", "-m", f"copydesk.{name.replace('-', '')}"]
    assert config["Healthcheck"]["Test"][:4] == ["CMD", "python", "-m", "copydesk.common.healthcheck"]
    assert config["Labels"]["org.opencontainers.image.version"] == "0.1.0"
    assert config["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"


@pytest.mark.parametrize("name", ALL)
def test_builders_stay_behind(composed: ComposedFleet, name: str) -> None:
    code = "import shutil; print(shutil.which('g++'), shutil.which('cc'))"
    assert output(composed, ours(name), "python", "-c", code).split() == ["None", "None"]


@pytest.mark.parametrize(
    ("name", "module"), [("gateway", "copydesk.gateway.lane"), ("inference", "copydesk.inference.engine.compiled")]
)
def test_what_is_compiled_is_there(composed: ComposedFleet, name: str, module: str) -> None:
    assert output(composed, ours(name), "python", "-m", module).startswith("/opt/copydesk/compiled/")


def test_a_wrong_setting_ends_the_container(composed: ComposedFleet) -> None:
    code = (
        "import os, subprocess, sys; os.environ['COPYDESK_EDS_METRICS_PORT'] = 'none'; "
        "print(subprocess.run([sys.executable, '-m', 'copydesk.eds'], capture_output=True).returncode)"
    )
    assert output(composed, ours("eds"), "python", "-c", code).strip() == "2"
