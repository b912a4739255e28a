"""Builds the C++ sources beside this module with g++, once a machine, and loads what comes out.

The library is kept in the cache folder under a name that is a digest of the sources and the compiler's flags:
whoever finds it there has the right one, and needs no compiler. Several processes may need it at once: one builds,
the others wait.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from copydesk.common.telemetry import get_logger
from copydesk.inference.cache_folder import CACHE_VARIABLE, cache_folder
from copydesk.inference.engine.compiled.errors import CompiledLibraryError

_log = get_logger(__name__)
FOLDER = "native"
_SOURCES = Path(__file__).parent / "csrc"
_COMPILER_VARIABLE = "CXX"
_FLAGS = (
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-pthread",
    "-fno-plt",
    "-Wall",
    "-Wextra",
    "-Wno-maybe-uninitialized",
    "-Wno-uninitialized",
)
# The compiler's own libraries go in, so that a machine without it can load what another one built.
_LINK_FLAGS = ("-shared", "-pthread", "-static-libstdc++", "-static-libgcc")
# Files are compiled for the instructions that their names end in, and chosen among at run time; the others are
# portable. Sums of floats keep the order that the sources give them: nowhere is -ffast-math.
_X86_FLAGS = {
    "_amx": "-mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mavx512bf16 -mfma -mamx-tile -mamx-int8 "
    "-mamx-bf16",
    "_avx512": "-mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mfma",
    "_avx2": "-mavx2 -mfma",
}
_INSTALL = "install a C++ compiler (Debian and Ubuntu: apt-get install g++), or set COPYDESK_INFERENCE_CORE=python"


@functools.cache
def load_library() -> ctypes.CDLL:
    """Return the library, built first if need be, which takes some ten seconds and is logged.

    Raises:
        CompiledLibraryError: there is no compiler, or it does not take the sources, or nothing can be written.
    """
    path = build(cache_folder() / FOLDER)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise CompiledLibraryError(str(error), f"remove {path} to have it built again") from error


def build(folder: Path) -> Path:
    """Return the library's path in `folder`, where it is built unless it is there already."""
    commands = _commands()
    library = folder / _digest(commands) / "libcopydesk.so"
    if _is_whole(library):
        return library
    compiler = _compiler()
    try:
        library.parent.mkdir(parents=True, exist_ok=True)
        with _lock(library.parent / "lock"):
            if not _is_whole(library):
                _build(compiler, commands, library)
    except OSError as error:
        advice = f"make {folder} writable, or set {CACHE_VARIABLE} to a folder that is"
        raise CompiledLibraryError(str(error), advice) from error
    return library


def _compiler() -> str:
    name = os.environ.get(_COMPILER_VARIABLE) or "g++"
    path = shutil.which(name)
    if path is None:
        raise CompiledLibraryError(f"there is no {name} on the PATH", _INSTALL)
    return path


def _commands() -> dict[Path, list[str]]:
    """By source file, how it is compiled, but for the compiler and the place of the output."""
    return {
        source: [*_FLAGS, *_flags_of(source.stem), "-c", str(source)] for source in sorted(_SOURCES.glob("*.cpp"))
    }


def _flags_of(stem: str) -> list[str]:
    if platform.machine() not in {"x86_64", "AMD64"}:
        return []
    return next((flags.split() for ending, flags in _X86_FLAGS.items() if stem.endswith(ending)), [])


def _digest(commands: dict[Path, list[str]]) -> str:
    digest = hashlib.sha256(platform.machine().encode())
    for command in [*commands.values(), [*_LINK_FLAGS, ""]]:
        digest.update(" ".join(command[:-1]).encode())
    for path in sorted(path for path in _SOURCES.iterdir() if path.is_file()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:24]


def _build(compiler: str, commands: dict[Path, list[str]], library: Path) -> None:
    began = time.monotonic()
    _log.info("compiled_library_building", files=len(commands), folder=str(library.parent))
    with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
        objects = {source: Path(scratch) / f"{source.stem}.o" for source in commands}
        jobs = [[compiler, *command, "-o", str(objects[source])] for source, command in commands.items()]
        with ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as pool:
            list(pool.map(_run, jobs))
        linked = Path(scratch) / library.name
        _run([compiler, *_LINK_FLAGS, *map(str, objects.values()), "-o", str(linked)])
        checksum = Path(scratch) / _checksum_file(library).name
        checksum.write_text(hashlib.sha256(linked.read_bytes()).hexdigest())
        checksum.replace(_checksum_file(library))
        linked.replace(library)
    _log.info("compiled_library_built", seconds=round(time.monotonic() - began, 1), path=str(library))


def _checksum_file(library: Path) -> Path:
    return library.with_suffix(".sha256")


def _is_whole(library: Path) -> bool:
    """Say whether a library is there as it was built; one cut short by a loss of power would kill who loads it."""
    try:
        return hashlib.sha256(library.read_bytes()).hexdigest() == _checksum_file(library).read_text()
    except OSError:
        return False


def _run(command: list[str]) -> str:
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip().splitlines() or ["no reason given"]
        full = next((line for line in said if "No space left" in line), None)
        first = full or next((line for line in said if "error" in line), said[0])
        advice = f"free some space, or set {CACHE_VARIABLE} to a folder on another disk"
        raise CompiledLibraryError(
            f"{command[0]} failed: {first}", advice if full else "GCC 11 or newer is needed"
        ) from error


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
