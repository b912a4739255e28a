"""The compiled library: built once, and where it cannot be, there is advice and a way on."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from copydesk.inference.cache_folder import CACHE_VARIABLE
from copydesk.inference.engine.compiled import CompiledLibraryError, load_library
from copydesk.inference.engine.compiled.library import build
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


def test_a_change_to_any_source_is_built_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler, sources = tmp_path / "c++", tmp_path / "csrc"
    compiler.write_text('#!/bin/sh\nfor last; do :; done\n[ "$1" = --version ] || echo built > "$last"\n')
    compiler.chmod(0o755)
    sources.mkdir()
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setattr("copydesk.inference.engine.compiled.library._SOURCES", sources)
    libraries = set()
    for name in ("kernel.cpp", "kernel.hpp", "kernel.inl"):
        (sources / name).write_text("first")
        libraries.add(build(tmp_path / "native"))
        (sources / name).write_text("second")
        libraries.add(build(tmp_path / "native"))
    assert len(libraries) == 6


def test_a_library_that_is_damaged_is_built_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "c++"
    compiler.write_text('#!/bin/sh\nfor last; do :; done\n[ "$1" = --version ] || echo built > "$last"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    library = build(tmp_path / "native")
    library.write_text("bui")
    assert build(tmp_path / "native") == library
    assert library.read_text() == "built\n"


def test_a_compiler_that_is_not_there_comes_with_advice(without_compiler: None, tmp_path: Path) -> None:
    with pytest.raises(CompiledLibraryError) as raised:
        build(tmp_path)
    assert "no-such-compiler" in raised.value.reason
    assert "apt-get install g++" in raised.value.advice


def test_what_has_been_built_needs_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = build(tmp_path)
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert build(tmp_path) == built


def test_a_compiler_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "c++"
    compiler.write_text(
        "#!/bin/sh\n[ \"$1\" = --version ] && exit 0\necho 'fatal error: out of ideas' >&2\nexit 1\n"
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(CompiledLibraryError, match="out of ideas"):
        build(tmp_path / "native")
    assert not list((tmp_path / "native").rglob("*.so"))


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CompiledLibraryError, match=CACHE_VARIABLE):
        build(tmp_path / "file" / "native")


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
