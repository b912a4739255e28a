"""C++ sources compiled where they are to run, once a machine, kept in the cache folder and loaded from there."""

from copydesk.common.compiled.cache_folder import CACHE_VARIABLE, cache_folder
from copydesk.common.compiled.errors import CompiledLibraryError
from copydesk.common.compiled.extension import extension, load_extension
from copydesk.common.compiled.library import Headers, Library, build, library_folder

__all__ = [
    "CACHE_VARIABLE",
    "CompiledLibraryError",
    "Headers",
    "Library",
    "build",
    "cache_folder",
    "extension",
    "library_folder",
    "load_extension",
]
