import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from copydesk.inference.pod.listener import listen
from tests.fixtures.nats import free_port
from tests.fixtures.tiny_model import write_tiny_model
from tests.integration.pod.running_pod import environment, running_pod


def run_to_its_end(model_dir: Path, **settings: object) -> tuple[int, str]:
    """Run a pod that cannot start; return its exit code and the last line that it wrote."""
    command = [sys.executable, "-m", "copydesk.inference"]
    result = subprocess.run(
        command, env=environment(model_dir, settings), capture_output=True, text=True, timeout=120, check=False
    )
    return result.returncode, result.stderr.splitlines()[-1]


def broken(model: Path, directory: Path, *, without: str = "", **config: object) -> Path:
    """Copy a model, less one file or with other entries in its config.json."""
    shutil.copytree(model, directory)
    if without:
        (directory / without).unlink()
    content = json.loads((directory / "config.json").read_text()) if without != "config.json" else {}
    if config:
        (directory / "config.json").write_text(json.dumps(content | config))
    return directory


def test_a_model_directory_that_is_not_there(tmp_path: Path) -> None:
    code, line = run_to_its_end(tmp_path / "nowhere")
    assert code == 2
    assert "COPYDESK_INFERENCE_MODEL_DIR: " in line
    assert str(tmp_path / "nowhere") in line


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_model_directory_that_lacks_a_file(silent_model: Path, tmp_path: Path, missing: str) -> None:
    code, line = run_to_its_end(broken(silent_model, tmp_path / "model", without=missing))
    assert code == 2
    assert "COPYDESK_INFERENCE_MODEL_DIR: " in line


def test_a_file_of_weights_that_was_cut_short(silent_model: Path, tmp_path: Path) -> None:
    directory = broken(silent_model, tmp_path / "model")
    weights = directory / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    code, line = run_to_its_end(directory)
    assert code == 2
    assert "COPYDESK_INFERENCE_MODEL_DIR: " in line
    assert "model.safetensors" in line


def test_an_architecture_that_the_engine_does_not_compute(silent_model: Path, tmp_path: Path) -> None:
    directory = broken(silent_model, tmp_path / "model", architectures=["BertModel"], model_type="bert")
    code, line = run_to_its_end(directory)
    assert code == 2
    assert "COPYDESK_INFERENCE_MODEL_DIR: " in line
    assert "bert" in line.lower()


def test_a_context_that_the_model_does_not_have(silent_model: Path) -> None:
    code, line = run_to_its_end(silent_model, CONTEXT=4096)
    assert code == 2
    assert "COPYDESK_INFERENCE_CONTEXT: 4096; expected 2 to 512" in line


def test_more_slots_than_memory(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "model", hidden=1024, context=131_072)
    code, line = run_to_its_end(model, SLOTS=1024, CONTEXT=131_072)
    assert code == 2
    assert "COPYDESK_INFERENCE_SLOTS: " in line
    assert "131072 tokens" in line


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("DTYPE", "float16", "'auto', 'fp8', 'int8', 'bfloat16' or 'float32'"),
        ("PORT", "http", "a valid integer"),
        ("NATS_URL", "http://somewhere", "expected nats://host:port"),
    ],
)
def test_a_setting_that_is_no_such_thing(silent_model: Path, name: str, value: str, expected: str) -> None:
    code, line = run_to_its_end(silent_model, **{name: value})
    assert code == 2
    assert f"COPYDESK_INFERENCE_{name}" in line
    assert expected in line


@pytest.mark.parametrize("name", ["PORT", "METRICS_PORT"])
def test_a_port_in_use(silent_model: Path, name: str) -> None:
    port = free_port()
    with listen("127.0.0.1", port):
        code, line = run_to_its_end(silent_model, **{name: port})
    assert code == 2
    assert f"COPYDESK_INFERENCE_{name}: cannot listen on 127.0.0.1:{port}: Address already in use" in line


def test_a_device_that_this_machine_lacks(silent_model: Path) -> None:
    code, line = run_to_its_end(silent_model, DEVICE="cuda:63", DTYPE="auto")
    assert code == 2
    assert "COPYDESK_INFERENCE_DEVICE: 'cuda:63'; expected a device that torch finds here" in line


def test_a_misspelt_setting_is_told_once_though_each_process_of_the_pod_reads_them(
    silent_model: Path, tmp_path: Path
) -> None:
    with running_pod(silent_model, tmp_path / "log", CACHE_TOKEN=5) as pod:
        pod.wait_ready()
        (line,) = [line for line in pod.output().splitlines() if "unknown_setting" in line]
    assert line.startswith("COPYDESK_INFERENCE_CACHE_TOKEN is ignored")
    assert line.endswith("did you mean COPYDESK_INFERENCE_CACHE_TOKENS?")
