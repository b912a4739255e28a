"""`python -m copydesk.inference.engine.compiled` builds the library ahead of its first use; says where it is."""

from __future__ import annotations

import sys

from copydesk.common.telemetry import configure_logging
from copydesk.inference.cache_folder import cache_folder
from copydesk.inference.engine.compiled.errors import CompiledLibraryError
from copydesk.inference.engine.compiled.library import FOLDER, build


def main() -> int:
    """Build; return the exit code."""
    configure_logging("build")
    try:
        print(build(cache_folder() / FOLDER))
    except CompiledLibraryError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
