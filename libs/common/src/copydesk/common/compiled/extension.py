"""Extension modules of CPython, compiled for the interpreter that runs."""

from __future__ import annotations

import sys
import sysconfig
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

from copydesk.common.compiled.errors import CompiledLibraryError
from copydesk.common.compiled.library import Headers, Library, build

# Portable: no instructions that only some processors have. Python's headers check themselves unless told NDEBUG.
_FLAGS = (
    "-std=c++17",
    "-O3",
    "-DNDEBUG",
    "-fPIC",
    "-fno-plt",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
)
# The compiler's own libraries go in, and stay unseen from without: other extensions bring their own.
_LINK_FLAGS = ("-shared", "-static-libstdc++", "-static-libgcc", "-Wl,--exclude-libs,ALL")


def extension(name: str, sources: Path, otherwise: str) -> Library:
    """Return how the module `name` (dotted, in full) is built from `sources` for this interpreter.

    `otherwise` is the advice for who has no compiler and wants none, in the imperative.
    """
    return Library(
        file=name.rpartition(".")[2] + str(sysconfig.get_config_var("EXT_SUFFIX")),
        sources=sources,
        flags=_FLAGS,
        link_flags=_LINK_FLAGS,
        headers=Headers(
            folder=Path(sysconfig.get_path("include")),
            needed="Python.h",
            advice=f"install Python's headers (Debian and Ubuntu: apt-get install python3-dev), or {otherwise}",
        ),
        target=f"{sys.implementation.cache_tag} {sysconfig.get_config_var('SOABI')}",
        otherwise=otherwise,
    )


def load_extension(name: str, library: Library, folder: Path) -> ModuleType:
    """Import the module `name` (dotted, in full) from `folder`, built first if need be; `import` finds it after.

    Raises:
        CompiledLibraryError: it can be neither found nor built, or Python does not take it.
    """
    path = build(library, folder)
    loader = ExtensionFileLoader(name, str(path))
    spec = spec_from_loader(name, loader, origin=str(path))
    if spec is None:
        raise CompiledLibraryError(f"{path} is no module", f"remove {path} to have it built again")
    try:
        module = module_from_spec(spec)
        loader.exec_module(module)
    except ImportError as error:
        raise CompiledLibraryError(str(error), f"remove {path} to have it built again") from error
    sys.modules[name] = module
    return module
