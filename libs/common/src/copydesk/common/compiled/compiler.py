"""The C++ compiler of this machine: g++, or what `CXX` names."""

from __future__ import annotations

import os
import shutil
import subprocess

from copydesk.common.cache_folder import CACHE_VARIABLE
from copydesk.common.compiled.errors import CompiledLibraryError

COMPILER_VARIABLE = "CXX"


def find_compiler(otherwise: str) -> str:
    """Return its path; `otherwise` is the advice for who wants none.

    Raises:
        CompiledLibraryError: there is none.
    """
    name = os.environ.get(COMPILER_VARIABLE) or "g++"
    path = shutil.which(name)
    if path is None:
        advice = f"install a C++ compiler (Debian and Ubuntu: apt-get install g++), or {otherwise}"
        raise CompiledLibraryError(f"there is no {name} on the PATH", advice)
    return path


def run_compiler(command: list[str]) -> None:
    """Compile or link.

    Raises:
        CompiledLibraryError: it failed; the first error that it printed is quoted.
    """
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip().splitlines() or ["no reason given"]
        full = next((line for line in said if "No space left" in line), None)
        first = full or next((line for line in said if "error" in line), said[0])
        advice = f"free some space, or set {CACHE_VARIABLE} to a folder on another disk"
        raise CompiledLibraryError(
            f"{command[0]} failed: {first}", advice if full else "GCC 11 or newer is needed"
        ) from error
