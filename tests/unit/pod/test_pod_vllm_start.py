"""What a pod does before it starts vLLM, and how it watches an engine that lives on the event loop."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from copydesk.inference.engine.vllm.client import CoreLostError
from copydesk.inference.engine.vllm.engine import VllmEngine
from copydesk.inference.engine.vllm.environment import NEEDED, Found
from copydesk.inference.pod import engine_start
from copydesk.inference.pod.engine_start import EngineStart
from copydesk.inference.pod.failure import CannotStartError
from copydesk.inference.pod.loop_engine_steps import LoopEngineSteps
from copydesk.inference.pod.runtime import RuntimeDirectory
from copydesk.inference.pod.supervisor import engine_spec
from copydesk.inference.settings import Core, Dtype, EngineKind, InferenceSettings
from tests.fixtures.tiny_model import write_tiny_model
from tests.unit.vllm_engine.fake_vllm import FakeVllm


def settings(directory: Path, **changes: Any) -> InferenceSettings:
    chosen: dict[str, Any] = {"model_dir": directory, "engine": EngineKind.VLLM, "context": 64, **changes}
    return InferenceSettings(**chosen)


def refusal(directory: Path, **changes: Any) -> str:
    with pytest.raises(CannotStartError) as raised:
        engine_start.engine_start(settings(directory, **changes), directory, {})
    return str(raised.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"dtype": Dtype.INT8}, "DTYPE: 'int8'; expected auto, bfloat16 or float32"),
        ({"core": Core.PYTHON}, "CORE: 'python'; expected auto with ENGINE=vllm"),
        ({"dtype": Dtype.FP8}, "DTYPE: 'fp8'; expected auto, bfloat16 or float32"),
        ({"graphs": 0}, "GRAPHS: 0; expected none with ENGINE=vllm"),
        ({"device": "null:5"}, "DEVICE: 'null:5'; expected cpu, cuda or cuda:N with vLLM"),
        ({"device": "cuda,null:5", "engines": 2}, "DEVICE: 'null:5'; expected cpu, cuda or cuda:N with vLLM"),
        ({"context": 4096}, "CONTEXT: 4096; expected 8 to 512, the model's longest sequence"),
        ({"vllm_python": "/nowhere/python"}, "VLLM_PYTHON: /nowhere/python does not run as a Python interpreter"),
        ({}, f"VLLM_PYTHON: {sys.executable} lacks vllm 0.32 or newer (there is none)"),
    ],
)
def test_what_vllm_does_not_serve_ends_the_pod_before_it_starts_anything(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    assert refusal(write_tiny_model(tmp_path), **changes).startswith(f"COPYDESK_INFERENCE_{said}")


def test_a_directory_without_a_model_is_told_by_its_setting(tmp_path: Path) -> None:
    assert refusal(tmp_path).startswith("COPYDESK_INFERENCE_MODEL_DIR: ")


def test_the_native_engine_is_started_as_ever(tmp_path: Path) -> None:
    start = engine_start.engine_start(settings(tmp_path, engine=EngineKind.NATIVE), tmp_path, {})
    assert start == EngineStart(sys.executable, {}, None)
    assert list(tmp_path.iterdir()) == []


def test_what_vllm_leaves_lying_about_goes_with_the_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Found((3, 11), Path("/v"), dict.fromkeys(NEEDED, "99.0"))
    monkeypatch.setattr("copydesk.inference.engine.vllm.environment.probe", lambda *_: found)
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    chosen = settings(write_tiny_model(tmp_path / "model"), vllm_python="/v/bin/python")
    start = engine_start.engine_start(chosen, runtime, {"PYTHONPATH": "/more"})
    assert start.search["TMPDIR"] == str(runtime / "scratch")
    assert start.search["PYTHONPATH"] == f"{runtime / 'bridge'}:/more"
    assert sorted(path.name for path in (runtime / "bridge" / "copydesk").iterdir()) == ["common", "inference"]
    assert (start.python, start.vllm) == ("/v/bin/python", Path("/v"))


def test_only_engine_processes_get_vllms_interpreter_and_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VLLM_NO_USAGE_STATS", raising=False)
    start = EngineStart("/v/bin/python", {"PYTHONPATH": "/bridge"}, Path("/v"))
    with RuntimeDirectory(tmp_path) as runtime:
        spec = engine_spec(settings(tmp_path, threads=1), runtime, 0, start)
    assert spec.python == "/v/bin/python"
    assert spec.environment["PYTHONPATH"] == "/bridge"
    assert spec.environment["VLLM_NO_USAGE_STATS"] == "1"
    assert spec.environment["OMP_NUM_THREADS"] == "1"


async def watched(client: FakeVllm, crashed: "asyncio.Future[Exception]") -> LoopEngineSteps:
    engine = VllmEngine(client, context=64, slots=1, queue=1, drafts=False)
    await engine.open()
    loop = asyncio.get_running_loop()
    return LoopEngineSteps(engine, loop=loop, on_crash=crashed.set_result, on_step=float)


async def test_an_engine_that_breaks_is_reported_once() -> None:
    client = FakeVllm()
    crashed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
    steps = await watched(client, crashed)
    steps.start()
    client.die()
    assert isinstance(await asyncio.wait_for(crashed, 10), CoreLostError)
    assert steps.stop(2.0)


async def test_stopping_ends_what_computes_and_is_no_crash() -> None:
    client = FakeVllm()
    crashed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
    steps = await watched(client, crashed)
    assert steps.step_age() == 0.0
    steps.start()
    await asyncio.sleep(0)
    assert steps.stop(2.0)
    await asyncio.sleep(0)
    assert client.closed == 2.0
    assert not crashed.done()
