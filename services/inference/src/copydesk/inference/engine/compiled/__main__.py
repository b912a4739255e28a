"""`python -m copydesk.inference.engine.compiled` builds the library ahead of its first use; says where it is."""

from __future__ import annotations

import sys

from copydesk.common.compiled import build_ahead
from copydesk.inference.engine.compiled.library import build_library

if __name__ == "__main__":
    sys.exit(build_ahead(build_library))
