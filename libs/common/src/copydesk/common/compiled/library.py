"""Builds a shared library of C++ sources with g++, once a machine.

The library is kept under a name that is a digest of the sources, the compiler's flags and what it was built for:
whoever finds it there has the right one, and needs no compiler. Several processes may need it at once: one builds,
the others wait.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from copydesk.common.cache_folder import CACHE_VARIABLE, cache_folder
from copydesk.common.compiled.compiler import find_compiler, run_compiler
from copydesk.common.compiled.errors import CompiledLibraryError
from copydesk.common.telemetry import get_logger

COMPILED_VARIABLE = "COPYDESK_COMPILED_DIR"

_log = get_logger(__name__)


@dataclass(frozen=True)
class Headers:
    """Headers from elsewhere that a library is compiled with: their folder, one that must be there, and advice."""

    folder: Path
    needed: str
    advice: str


@dataclass(frozen=True)
class Library:
    """C++ sources that become one shared library, and how.

    Attributes:
        file: the name of the library's file.
        sources: the folder whose `.cpp` files are compiled; every file in it counts as a part of the sources.
        flags: for each compilation.
        link_flags: for putting the library together.
        more_flags: further ones for the files whose names, less `.cpp`, end in the key.
        headers: what the sources need beyond the compiler's own; not a part of the digest, `target` stands for it.
        target: what the library is built for, apart from the kind of processor.
        otherwise: what to do where there is no compiler and none is wanted, in the imperative.
    """

    file: str
    sources: Path
    flags: tuple[str, ...]
    link_flags: tuple[str, ...]
    more_flags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    headers: Headers | None = None
    target: str = ""
    otherwise: str = "do without it"

    def flags_of(self, source: Path) -> list[str]:
        """Return what the compiler is told about a file, but for the places of headers, source and output."""
        more = next((flags for ending, flags in self.more_flags.items() if source.stem.endswith(ending)), ())
        return [*self.flags, *more]

    @property
    def files(self) -> list[Path]:
        """The files that are compiled, each by itself."""
        return sorted(self.sources.glob("*.cpp"))

    @property
    def digest(self) -> str:
        """What the library is made from, in 24 hexadecimal digits."""
        digest = hashlib.sha256("\0".join([platform.machine(), self.target, self.file]).encode())
        for flags in [*map(self.flags_of, self.files), self.link_flags]:
            digest.update(" ".join(flags).encode() + b"\0")
        for path in sorted(path for path in self.sources.iterdir() if path.is_file()):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
        return digest.hexdigest()[:24]


def library_folder() -> Path:
    """Where this machine keeps its compiled libraries: the cache folder, unless `COPYDESK_COMPILED_DIR` is set.

    An image has them in a folder of its own, since its cache folder is a volume that outlives it.
    """
    override = os.environ.get(COMPILED_VARIABLE, "")
    return Path(override).expanduser() if override else cache_folder() / "native"


def build(library: Library, folder: Path) -> Path:
    """Return the library's path in `folder`, where it is built unless it is there already.

    Raises:
        CompiledLibraryError: there is no compiler, or it does not take the sources, or nothing can be written.
    """
    path = folder / library.digest / library.file
    if _is_whole(path):
        return path
    compiler = find_compiler(library.otherwise)
    _expect(library.headers)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _lock(path.parent / "lock"):
            if not _is_whole(path):
                _build(compiler, library, path)
    except OSError as error:
        advice = f"make {folder} writable, or set {CACHE_VARIABLE} to a folder that is"
        raise CompiledLibraryError(str(error), advice) from error
    return path


def _expect(headers: Headers | None) -> None:
    if headers is not None and not (headers.folder / headers.needed).is_file():
        raise CompiledLibraryError(f"there is no {headers.needed} in {headers.folder}", headers.advice)


def _build(compiler: str, library: Library, path: Path) -> None:
    began = time.monotonic()
    _log.info("compiled_library_building", files=len(library.files), folder=str(path.parent))
    include = [] if library.headers is None else ["-isystem", str(library.headers.folder)]
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        objects = {source: Path(scratch) / f"{source.stem}.o" for source in library.files}
        jobs = [
            [compiler, *library.flags_of(source), *include, "-c", str(source), "-o", str(made)]
            for source, made in objects.items()
        ]
        with ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as pool:
            list(pool.map(run_compiler, jobs))
        linked = Path(scratch) / path.name
        run_compiler([compiler, *library.link_flags, *map(str, objects.values()), "-o", str(linked)])
        checksum = Path(scratch) / _checksum_file(path).name
        checksum.write_text(hashlib.sha256(linked.read_bytes()).hexdigest())
        checksum.replace(_checksum_file(path))
        linked.replace(path)
    _log.info("compiled_library_built", seconds=round(time.monotonic() - began, 1), path=str(path))


def _checksum_file(path: Path) -> Path:
    return path.with_suffix(".sha256")


def _is_whole(path: Path) -> bool:
    """Say whether a library is there as it was built; one cut short by a loss of power would kill who loads it."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() == _checksum_file(path).read_text()
    except OSError:
        return False


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
