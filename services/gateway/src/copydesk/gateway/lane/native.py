"""Builds the C++ sources beside this module, once a machine, and loads the extension module that comes out."""

from __future__ import annotations

import functools
from pathlib import Path
from types import ModuleType
from typing import Literal

from copydesk.common.compiled import CompiledLibraryError, build, extension, library_folder, load_extension
from copydesk.common.telemetry import get_logger

Core = Literal["auto", "compiled", "python"]

_log = get_logger(__name__)
MODULE = "copydesk.gateway.lane._native"
OTHERWISE = "set COPYDESK_GATEWAY_CORE=python"
LIBRARY = extension(MODULE, Path(__file__).parent / "csrc", OTHERWISE)


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


def open_native(core: Core) -> ModuleType | None:
    """Return the module, or None where Python is to serve: it was asked for, or is what is left to `auto`.

    Raises:
        CompiledLibraryError: `core` is compiled, and the module is not to be had.
    """
    if core == "python":
        return None
    try:
        return load_native()
    except CompiledLibraryError as error:
        if core == "compiled":
            raise
        _log.warning("compiled_lane_missing", reason=error.reason, advice=error.advice)
        return None
