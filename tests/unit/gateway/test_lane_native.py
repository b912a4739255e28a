"""The express lane's module: what each setting of the core does where it can be built, and where it cannot."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from copydesk.common.cache_folder import CACHE_VARIABLE
from copydesk.common.compiled import CompiledLibraryError, extension
from copydesk.gateway.lane import native
from copydesk.gateway.lane.native import Core, open_native

NAME = "copydesk_lane_example._native"
SOURCE = r"""
#include <Python.h>

static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native", nullptr, -1};

PyMODINIT_FUNC PyInit__native() { return PyModule_Create(&definition); }
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache folder, and a module that compiles at once in place of the real one."""
    sources = tmp_path / "csrc"
    sources.mkdir()
    (sources / "module.cpp").write_text(SOURCE)
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(native, "MODULE", NAME)
    monkeypatch.setattr(native, "LIBRARY", extension(NAME, sources, native.OTHERWISE))
    monkeypatch.setattr(native, "load_native", functools.cache(native.load_native.__wrapped__))
    yield tmp_path / "cache"
    sys.modules.pop(NAME, None)


@pytest.mark.parametrize("core", ["auto", "compiled"])
def test_the_module_is_built_and_loaded_once(core: Core, cache: Path) -> None:
    module = open_native(core)
    assert module is not None
    assert Path(str(module.__file__)).is_relative_to(cache)
    assert open_native(core) is module


def test_python_builds_nothing(cache: Path) -> None:
    assert open_native("python") is None
    assert not cache.exists()


def test_auto_goes_on_in_python_without_a_compiler_and_says_so(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with capture_logs() as logs:
        assert open_native("auto") is None
    assert [line["event"] for line in logs] == ["compiled_lane_missing"]
    assert logs[0]["log_level"] == "warning"
    assert "no-such-compiler" in logs[0]["reason"]
    assert "COPYDESK_GATEWAY_CORE=python" in logs[0]["advice"]


def test_compiled_is_refused_without_a_compiler(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(CompiledLibraryError) as raised:
        open_native("compiled")
    assert "apt-get install g++" in str(raised.value)
    assert "COPYDESK_GATEWAY_CORE=python" in str(raised.value)


def test_building_ahead_fails_with_the_advice(tmp_path: Path) -> None:
    environment = os.environ | {CACHE_VARIABLE: str(tmp_path), "CXX": "no-such-compiler"}
    command = [sys.executable, "-m", "copydesk.gateway.lane"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert "apt-get install g++" in done.stderr
