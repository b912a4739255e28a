"""The compiled half of the engines: C++ sources in `csrc`, built where they are to run, and the library they become."""

from copydesk.inference.engine.compiled.errors import CompiledLibraryError
from copydesk.inference.engine.compiled.library import load_library

__all__ = ["CompiledLibraryError", "load_library"]
