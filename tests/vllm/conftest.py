import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.tiny_model import write_tiny_model
from tests.integration.pod.running_pod import RunningPod, running_pod
from tests.vllm.vllm_processes import wait_ready

HOW = "set COPYDESK_TEST_VLLM_PYTHON to its interpreter; scripts/vllm-env.sh DIR makes an environment"
CONTEXT = 2048


@pytest.fixture(scope="session")
def vllm_python() -> str:
    python = os.environ.get("COPYDESK_TEST_VLLM_PYTHON", "")
    if not python:
        if os.environ.get("COPYDESK_REQUIRE_ALL") == "1":
            pytest.fail(f"vLLM is missing: {HOW}")
        pytest.skip(f"vLLM is not tested: {HOW}")
    return python


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random, with heads of a size that vLLM's attention has, and of a context that a text does not fill soon."""
    directory = tmp_path_factory.mktemp("tiny")
    return write_tiny_model(directory, seed=5, hidden=256, heads=4, kv_heads=2, context=CONTEXT)


def vllm_pod(python: str, model: Path, log: Path, **settings: Any) -> AbstractContextManager[RunningPod]:
    """Start a pod over vLLM that computes without compiling first."""
    return running_pod(
        model,
        log,
        **{
            "ENGINE": "vllm",
            "VLLM_PYTHON": python,
            "VLLM_EAGER": "true",
            "THREADS": 0,
            "SLOTS": 2,
            "QUEUE": 2,
            "CONTEXT": CONTEXT,
            # The machine may be short of time for anything while vLLM starts.
            "ANSWER_TIMEOUT_MS": 30_000,
            "DRAIN_TIMEOUT_MS": 120_000,
            "START_TIMEOUT_MS": 900_000,
            **settings,
        },
    )


@pytest.fixture(scope="session")
def native_pod(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPod]:
    """The same model in the native engine."""
    log = tmp_path_factory.mktemp("native") / "log"
    with running_pod(tiny_model, log, DTYPE="float32", CONTEXT=CONTEXT, SLOTS=2) as pod:
        wait_ready(pod)
        yield pod
