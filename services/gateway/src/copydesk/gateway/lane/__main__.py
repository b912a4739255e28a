"""`python -m copydesk.gateway.lane` builds the module ahead of its first use; says where it is."""

from __future__ import annotations

import sys

from copydesk.common.compiled import build_ahead
from copydesk.gateway.lane.native import build_native

if __name__ == "__main__":
    sys.exit(build_ahead(build_native))
