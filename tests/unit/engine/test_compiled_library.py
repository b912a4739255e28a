"""The engine's compiled library: built once, and where it cannot be, there is advice and a way on."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from copydesk.common.cache_folder import CACHE_VARIABLE
from copydesk.inference.engine.compiled import CompiledLibraryError, load_library
from copydesk.inference.engine.native import (
    Core,
    InvalidOptionError,
    NativeEngine,
    NativeOptions,
    Precision,
    open_engine,
)
from tests.fixtures.tiny_model import write_tiny_model


@pytest.fixture
def without_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    load_library.cache_clear()
    yield
    load_library.cache_clear()


def test_two_processes_build_it_once(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "copydesk.inference.engine.compiled"]
    environment = os.environ | {CACHE_VARIABLE: str(tmp_path)}
    started = [subprocess.Popen(command, env=environment, stdout=-1, stderr=-1, text=True) for _ in range(2)]
    said = [process.communicate(timeout=200) for process in started]
    assert [process.returncode for process in started] == [0, 0]
    assert said[0][0] == said[1][0]
    assert Path(said[0][0].strip()).is_file()
    assert sum("compiled_library_built" in errors for _, errors in said) == 1


def test_a_compiler_that_is_not_there_comes_with_advice(without_compiler: None) -> None:
    with pytest.raises(CompiledLibraryError) as raised:
        load_library()
    assert "no-such-compiler" in raised.value.reason
    assert "apt-get install g++" in raised.value.advice
    assert "COPYDESK_INFERENCE_CORE=python" in raised.value.advice


def test_without_a_compiler_the_engine_in_python_serves(without_compiler: None, tmp_path: Path) -> None:
    engine = open_engine(write_tiny_model(tmp_path), NativeOptions(slots=2, context=32, threads=1))
    assert isinstance(engine, NativeEngine)


@pytest.mark.parametrize(
    ("option", "options"),
    [
        ("core", NativeOptions(core=Core.COMPILED, context=32)),
        ("precision", NativeOptions(precision=Precision.INT8, context=32)),
    ],
)
def test_what_needs_a_compiler_says_so(
    without_compiler: None, option: str, options: NativeOptions, tmp_path: Path
) -> None:
    with pytest.raises(InvalidOptionError) as raised:
        open_engine(write_tiny_model(tmp_path), options)
    assert raised.value.option == option
    assert "apt-get install g++" in str(raised.value)
