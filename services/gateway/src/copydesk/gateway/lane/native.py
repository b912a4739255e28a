"""Builds the C++ sources beside this module, once a machine, and loads the extension module that comes out."""

from __future__ import annotations

import functools
from pathlib import Path
from types import ModuleType

from copydesk.common.compiled import build, extension, library_folder, load_extension

MODULE = "copydesk.gateway.lane._native"
LIBRARY = extension(MODULE, Path(__file__).parent / "csrc", "set COPYDESK_GATEWAY_CORE=python")


def build_native() -> Path:
    """Return where the module is, built first if need be, which takes some seconds and is logged.

    Raises:
        CompiledLibraryError: there is no compiler, or no Python.h, or the sources are refused, or nothing can be
            written.
    """
    return build(LIBRARY, library_folder())


@functools.cache
def load_native() -> ModuleType:
    """Return the module, whose types `_native.pyi` tells, built first if need be.

    From then on `from copydesk.gateway.lane import _native` finds it too.

    Raises:
        CompiledLibraryError: as for `build_native`, or Python does not take the module.
    """
    return load_extension(MODULE, LIBRARY, library_folder())
