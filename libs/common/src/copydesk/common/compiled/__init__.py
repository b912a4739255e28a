"""C++ sources compiled where they are to run, once a machine, kept in the cache folder and loaded from there."""

from copydesk.common.compiled.ahead import build_ahead
from copydesk.common.compiled.errors import CompiledLibraryError
from copydesk.common.compiled.extension import extension, load_extension
from copydesk.common.compiled.library import Headers, Library, build, library_folder

__all__ = [
    "CompiledLibraryError",
    "Headers",
    "Library",
    "build",
    "build_ahead",
    "extension",
    "library_folder",
    "load_extension",
]
