"""What the image holds: this machine's Python with its packages, made up to a size, and a program that reads it.

No registry is asked for a base image. The interpreter, its standard library and the shared libraries that they
need are this machine's own; torch and numpy come from the environment that runs the benchmark. Where these are
not enough, a large library of made-up content fills the image up.
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.image.errors import BenchError

PACKAGES = (
    *("numpy", "numpy.libs", "torch", "typing_extensions.py"),
    *("mpmath", "sympy", "networkx", "jinja2", "markupsafe", "fsspec", "filelock"),
)
FURTHER = (
    *("transformers", "tokenizers", "safetensors", "huggingface_hub", "regex", "yaml", "tqdm"),
    *("requests", "packaging", "pandas", "scipy"),
)
_UNUSED = re.compile(
    r"(^|/)(test|tests|idlelib|tkinter|turtledemo|lib2to3|ensurepip|config-[^/]*|site-packages|include)(/|$)"
    r"|\.opt-[12]\.pyc$|\.a$"
)
_TORCH_UNUSED = re.compile(r"^torch/(bin/(?!torch_shm_manager)|include|test)")
_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
_LIBRARY = f"usr/local/lib/python{_VERSION}"
_PIECE = 1 << 20


@dataclass(frozen=True)
class Entry:
    """A file of the image: its name there, and where its content is, or the content itself."""

    name: str
    source: Path | None = None
    content: bytes = b""
    mode: int = 0o644

    @property
    def size(self) -> int:
        """Bytes that it holds."""
        return self.source.stat().st_size if self.source else len(self.content)


@dataclass(frozen=True)
class Start:
    """A start-up to be measured: what the program is told to import before its first output."""

    name: str
    modules: tuple[str, ...]


STARTS = {
    "python": Start("python", ()),
    "server": Start("server", ("asyncio", "ssl", "json", "logging", "http.client", "concurrent.futures")),
    "numpy": Start("numpy", ("numpy",)),
    "torch": Start("torch", ("torch",)),
}

PROGRAM = '''"""Imports what it is told to, says so, and with "all" reads every file of the image twice."""
import importlib, json, os, sys, time

for name in sys.argv[2:]:
    importlib.import_module(name)
print("ready", flush=True)


def read_all():
    buffer, count, reading = bytearray(1 << 20), 0, 0.0
    began = time.monotonic()
    for folder, folders, names in os.walk("/"):
        folders[:] = sorted(own for own in folders if os.path.join(folder, own) not in ("/proc", "/sys", "/dev"))
        for name in sorted(names):
            path = os.path.join(folder, name)
            if os.path.islink(path) or not os.path.isfile(path):
                continue
            with open(path, "rb", buffering=0) as file:
                opened = time.monotonic()
                while got := file.readinto(buffer):
                    count += got
                reading += time.monotonic() - opened
    return {"bytes": count, "seconds": time.monotonic() - began, "reading": reading}


if sys.argv[1] == "all":
    print(json.dumps([read_all(), read_all()]), flush=True)
'''
PYTHON = f"/usr/local/bin/python{_VERSION}"
PROGRAM_PATH = "/opt/app/start.py"
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LD_LIBRARY_PATH": "/usr/local/lib:/lib/x86_64-linux-gnu",
    "PYTHONHOME": "/usr/local",
    "PYTHONDONTWRITEBYTECODE": "1",
}


def layers(megabytes: int, *, quick: bool) -> list[list[Entry]]:
    """The image's layers, lowest first: the interpreter, its packages, and the program with what fills it up."""
    base = _interpreter()
    packages = [] if quick else _packages(megabytes << 20, sum(entry.size for entry in base))
    base += _libraries([entry.source for entry in [*base, *packages] if entry.source])
    missing = (megabytes << 20) - sum(entry.size for entry in [*base, *packages])
    program = [Entry(PROGRAM_PATH[1:], content=PROGRAM.encode())]
    if missing > _PIECE:
        program.append(Entry("opt/app/libmodel.so", content=_filler(missing), mode=0o755))
    return [layer for layer in (base, packages, program) if layer]


def _interpreter() -> list[Entry]:
    library = Path(sysconfig.get_path("stdlib"))
    entries = [Entry(PYTHON[1:], Path(sys.executable).resolve(), mode=0o755)]
    for path in _files(library):
        name = str(path.relative_to(library))
        if not _UNUSED.search(name):
            entries.append(Entry(f"{_LIBRARY}/{name}", path, mode=_mode(path)))
    return entries


def _packages(limit: int, used: int) -> list[Entry]:
    """Packages of this environment: those that torch and numpy need, then others up to `limit` bytes."""
    site = Path(sysconfig.get_path("purelib"))
    entries: list[Entry] = []
    for package in (*PACKAGES, *FURTHER):
        for path in _files(site / package):
            name = str(path.relative_to(site))
            if _TORCH_UNUSED.search(name) or name.endswith(".a"):
                continue
            used += path.stat().st_size
            if used > limit and package in FURTHER:
                return entries
            entries.append(Entry(f"{_LIBRARY}/site-packages/{name}", path, mode=_mode(path)))
    return entries


def _files(path: Path) -> Iterator[Path]:
    """Every file below a folder, or the file itself, in the order of names; nothing if it is not there."""
    if path.is_file():
        yield path
    elif path.is_dir():
        yield from sorted(own for own in path.rglob("*") if own.is_file() and not own.is_symlink())


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def _libraries(files: Iterable[Path]) -> list[Entry]:
    """The system's shared libraries that programs and libraries among `files` need, each under its name here."""
    known = _system_libraries()
    found: dict[str, Path] = {}
    pending = [file for file in files if ".so" in file.name or file.parent.name == "bin"]
    while pending:
        needed = {known[name] for name in _needed(pending) if name in known} - set(found)
        found |= {name: Path(name).resolve() for name in needed}
        pending = [found[name] for name in needed]
    loader = _loader(Path(sys.executable).resolve())
    own = Path(sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("INSTSONAME"))
    found |= {str(loader): loader.resolve()}
    entries = [Entry(name[1:], path, mode=0o755) for name, path in sorted(found.items()) if path.name != own.name]
    return [*entries, Entry(f"usr/local/lib/{own.name}", own, mode=0o755)] if ".so" in own.name else entries


def _system_libraries() -> dict[str, str]:
    """Where the loader finds a library by its name."""
    listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    found: dict[str, str] = {}
    for name, path in re.findall(r"^\s*(\S+) \([^)]*x86-64[^)]*\) => (/\S+)$", listed, re.MULTILINE):
        found.setdefault(name, path)
    return found


def _loader(program: Path) -> Path:
    """What starts a program that needs shared libraries."""
    command = ["readelf", "--program-headers", str(program)]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    match = re.search(r"program interpreter: (/[^]]+)", listed)
    if match is None:
        raise BenchError(str(program), "names no loader")
    return Path(match[1])


def _needed(objects: Sequence[Path]) -> set[str]:
    """The names of libraries that ELF files need."""
    listed = subprocess.run(
        ["readelf", "--dynamic", *map(str, objects)], capture_output=True, text=True, check=False
    ).stdout
    return set(re.findall(r"\(NEEDED\).*\[(.+)\]", listed))


def _filler(size: int) -> bytes:
    """Made-up machine code: as compressible as a real library, the same every time."""
    chance = random.Random(size)
    words = [chance.randbytes(chance.randrange(2, 12)) for _ in range(4096)]
    out = bytearray()
    while len(out) < size:
        block = b"".join(chance.choices(words, k=2048))
        out += block * (1 if chance.random() < 0.8 else 2)
    return bytes(out[:size])
