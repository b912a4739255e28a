"""`python -m copydesk.gateway.lane` builds the module ahead of its first use; says where it is."""

from __future__ import annotations

import sys

from copydesk.common.compiled import CompiledLibraryError
from copydesk.common.telemetry import configure_logging
from copydesk.gateway.lane.native import build_native


def main() -> int:
    """Build; return the exit code."""
    configure_logging("build")
    try:
        print(build_native())
    except CompiledLibraryError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
