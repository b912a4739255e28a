"""Compiled libraries: built once from exactly their sources, and where they cannot be, there is advice."""

import ctypes
from dataclasses import replace
from pathlib import Path

import pytest

from copydesk.common.cache_folder import CACHE_VARIABLE, cache_folder
from copydesk.common.compiled import CompiledLibraryError, Library, build, library_folder

OBEDIENT = '#!/bin/sh\nfor last; do :; done\necho built > "$last"\n'
REFUSING = "#!/bin/sh\necho 'a warning' >&2\necho 'fatal error: out of ideas' >&2\nexit 1\n"
CROWDED = "#!/bin/sh\necho 'fatal error: No space left on device' >&2\nexit 1\n"


@pytest.fixture
def library(tmp_path: Path) -> Library:
    sources = tmp_path / "csrc"
    sources.mkdir()
    (sources / "seven.cpp").write_text('extern "C" int seven() { return 7; }\n')
    (sources / "eight_fast.cpp").write_text('extern "C" int eight() { return EIGHT; }\n')
    return Library(
        file="libseven.so",
        sources=sources,
        flags=("-fPIC",),
        link_flags=("-shared",),
        more_flags={"_fast": ("-DEIGHT=8",)},
        otherwise="count by hand",
    )


def use_compiler(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    compiler = folder / "c++"
    compiler.write_text(script)
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))


def test_files_are_compiled_with_the_flags_that_their_names_call_for(library: Library, tmp_path: Path) -> None:
    loaded = ctypes.CDLL(str(build(library, tmp_path / "native")))
    assert (loaded.seven(), loaded.eight()) == (7, 8)


def test_what_has_been_built_needs_no_compiler(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_compiler(monkeypatch, tmp_path, OBEDIENT)
    built = build(library, tmp_path / "native")
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert build(library, tmp_path / "native") == built


def test_a_change_to_any_source_is_built_anew(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_compiler(monkeypatch, tmp_path, OBEDIENT)
    built = set()
    for name in ("kernel.cpp", "kernel.hpp", "kernel.inl"):
        for text in ("first", "second"):
            (library.sources / name).write_text(text)
            built.add(build(library, tmp_path / "native"))
    assert len(built) == 6


def test_a_change_to_any_flag_is_built_anew(library: Library) -> None:
    variants = [
        library,
        replace(library, flags=("-fPIC", "-O2")),
        replace(library, link_flags=("-shared", "-s")),
        replace(library, more_flags={"_fast": ("-DEIGHT=9",)}),
        replace(library, target="other"),
    ]
    assert len({variant.digest for variant in variants}) == len(variants)


def test_a_library_that_is_damaged_is_built_anew(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_compiler(monkeypatch, tmp_path, OBEDIENT)
    built = build(library, tmp_path / "native")
    built.write_text("bui")
    assert build(library, tmp_path / "native") == built
    assert built.read_text() == "built\n"


def test_a_compiler_that_is_not_there_comes_with_advice(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(CompiledLibraryError) as raised:
        build(library, tmp_path / "native")
    assert "no-such-compiler" in raised.value.reason
    assert "apt-get install g++" in raised.value.advice
    assert raised.value.advice.endswith("or count by hand")


@pytest.mark.parametrize(
    ("compiler", "reason", "advice"),
    [(REFUSING, "out of ideas", "GCC 11"), (CROWDED, "No space left", CACHE_VARIABLE)],
)
def test_a_compiler_that_fails_is_quoted(
    library: Library, compiler: str, reason: str, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_compiler(monkeypatch, tmp_path, compiler)
    with pytest.raises(CompiledLibraryError, match=reason) as raised:
        build(library, tmp_path / "native")
    assert advice in raised.value.advice
    assert not list((tmp_path / "native").rglob("*.so"))


def test_a_folder_that_cannot_be_written_is_named(library: Library, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CompiledLibraryError, match=CACHE_VARIABLE):
        build(library, tmp_path / "file" / "native")


def test_libraries_are_kept_in_the_cache_folder_which_is_a_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    assert cache_folder() == tmp_path
    assert library_folder() == tmp_path / "native"


def test_a_folder_for_libraries_alone_wins_over_the_cache_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv("COPYDESK_COMPILED_DIR", str(tmp_path / "compiled"))
    assert library_folder() == tmp_path / "compiled"
