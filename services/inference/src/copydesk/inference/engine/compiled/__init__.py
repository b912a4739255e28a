"""The compiled half of the engines: C++ sources in `csrc`, and the library that is built of them."""

from copydesk.common.compiled import CompiledLibraryError
from copydesk.inference.engine.compiled.library import load_library

__all__ = ["CompiledLibraryError", "load_library"]
