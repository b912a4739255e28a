"""`python -m copydesk.inference.engine.compiled` builds the library ahead of its first use; says where it is."""

from __future__ import annotations

import sys

from copydesk.common.telemetry import configure_logging
from copydesk.inference.engine.compiled.errors import CompiledLibraryError
from copydesk.inference.engine.compiled.library import build, cache_folder


def main() -> int:
    """Build; return the exit code."""
    configure_logging("build")
    try:
        print(build(cache_folder()))
    except CompiledLibraryError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
