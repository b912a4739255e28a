"""Building before the first use: at set-up, or in an image."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from copydesk.common.compiled.errors import CompiledLibraryError
from copydesk.common.telemetry import configure_logging


def build_ahead(make: Callable[[], Path]) -> int:
    """Call what builds, print where the result is, or the error and its advice; return the exit code."""
    configure_logging("build")
    try:
        print(make())
    except CompiledLibraryError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0
