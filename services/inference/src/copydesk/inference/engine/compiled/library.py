"""The C++ sources beside this module as one library, which is built with g++ once a machine."""

from __future__ import annotations

import ctypes
import functools
import platform
from pathlib import Path

from copydesk.common.compiled import CompiledLibraryError, Library, build, library_folder

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
_X86 = platform.machine() in {"x86_64", "AMD64"}

LIBRARY = Library(
    file="libcopydesk.so",
    sources=Path(__file__).parent / "csrc",
    flags=_FLAGS,
    link_flags=_LINK_FLAGS,
    more_flags={ending: tuple(flags.split()) for ending, flags in _X86_FLAGS.items()} if _X86 else {},
    otherwise="set COPYDESK_INFERENCE_CORE=python",
)


def build_library() -> Path:
    """Return the library's path in the cache folder, where it is built unless it is there already.

    Raises:
        CompiledLibraryError: there is no compiler, or it does not take the sources, or nothing can be written.
    """
    return build(LIBRARY, library_folder())


@functools.cache
def load_library() -> ctypes.CDLL:
    """Return the library, built first if need be, which takes some ten seconds and is logged.

    Raises:
        CompiledLibraryError: as for `build_library`, or it cannot be loaded.
    """
    path = build_library()
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise CompiledLibraryError(str(error), f"remove {path} to have it built again") from error
