"""Extension modules: built once for this interpreter, found again without a compiler, clear about what lacks."""

import importlib
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from copydesk.common.compiled import CompiledLibraryError, build, extension, load_extension

NAME = "copydesk_seven.inner.seven"
SOURCE = r"""
#include <Python.h>

static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "seven", nullptr, -1};

PyMODINIT_FUNC PyInit_seven() {
    PyObject* module = PyModule_Create(&definition);
    if (module != nullptr) PyModule_AddIntConstant(module, "value", 7);
    return module;
}
"""


@pytest.fixture
def sources(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "csrc"
    folder.mkdir()
    (folder / "module.cpp").write_text(SOURCE)
    yield folder
    sys.modules.pop(NAME, None)


def test_a_module_is_built_and_imported_under_its_full_name(sources: Path, tmp_path: Path) -> None:
    module = load_extension(NAME, extension(NAME, sources, "go without"), tmp_path / "native")
    assert module.__name__ == NAME
    assert module.value == 7
    assert str(module.__file__).endswith(f"/seven{sysconfig.get_config_var('EXT_SUFFIX')}")
    assert importlib.import_module(NAME) is module


def test_what_has_been_built_needs_neither_compiler_nor_headers(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = build(extension(NAME, sources, "go without"), tmp_path / "native")
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    assert build(extension(NAME, sources, "go without"), tmp_path / "native") == built


def test_another_interpreter_gets_a_build_of_its_own(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digests = {extension(NAME, sources, "go without").digest}
    monkeypatch.setattr(sys.implementation, "cache_tag", "cpython-399")
    digests.add(extension(NAME, sources, "go without").digest)
    known = sysconfig.get_config_var
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: "399d" if name == "SOABI" else known(name))
    digests.add(extension(NAME, sources, "go without").digest)
    assert len(digests) == 3


def test_missing_headers_come_with_advice(sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path / "include"))
    with pytest.raises(CompiledLibraryError) as raised:
        build(extension(NAME, sources, "go without"), tmp_path / "native")
    assert "Python.h" in raised.value.reason
    assert str(tmp_path / "include") in raised.value.reason
    assert "apt-get install python3-dev" in raised.value.advice
    assert raised.value.advice.endswith("or go without")


def test_a_missing_compiler_comes_with_advice(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(CompiledLibraryError) as raised:
        build(extension(NAME, sources, "go without"), tmp_path / "native")
    assert "no-such-compiler" in raised.value.reason
    assert "apt-get install g++" in raised.value.advice
    assert raised.value.advice.endswith("or go without")


def test_a_source_that_is_broken_is_quoted(sources: Path, tmp_path: Path) -> None:
    (sources / "module.cpp").write_text(SOURCE.replace("definition =", "definition :="))
    with pytest.raises(CompiledLibraryError, match=r"module\.cpp:4:.* error: "):
        build(extension(NAME, sources, "go without"), tmp_path / "native")
    assert not list((tmp_path / "native").rglob("*.so"))


def test_a_module_that_python_does_not_take_is_named(sources: Path, tmp_path: Path) -> None:
    (sources / "module.cpp").write_text(SOURCE.replace("PyInit_seven", "PyInit_eight"))
    with pytest.raises(CompiledLibraryError, match="PyInit_seven") as raised:
        load_extension(NAME, extension(NAME, sources, "go without"), tmp_path / "native")
    assert "to have it built again" in raised.value.advice
    assert NAME not in sys.modules
