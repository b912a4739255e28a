"""`python -m copydesk.imagefetcher.holder`: keep descriptors for the daemon, until a signal.

Its one setting is the daemon's COPYDESK_IMAGEFETCHER_RUN_DIR, in which the socket lies.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path
from types import FrameType

from copydesk.imagefetcher.holder.keeper import Keeper
from copydesk.imagefetcher.paths import RUN_DIR, holder_socket

_OUT_OF_MEMORY_SCORE = "-900"


def main() -> int:
    """Serve; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m copydesk.imagefetcher.holder",
        description="Keep the image fetcher's descriptors while its daemon restarts, until SIGTERM.",
        epilog=f"The environment's COPYDESK_IMAGEFETCHER_RUN_DIR [{RUN_DIR}] is the folder of its socket.",
    )
    parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    _spare()
    path = holder_socket(Path(os.environ.get("COPYDESK_IMAGEFETCHER_RUN_DIR") or RUN_DIR))
    try:
        keeper = Keeper(path)
    except OSError as error:
        print(f"holder: cannot listen at {path}: {error.strerror}", file=sys.stderr)
        return 2
    try:
        keeper.serve()
    except SystemExit:
        keeper.close()
        path.unlink(missing_ok=True)
    return 0


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit


def _spare() -> None:
    """Ask the kernel to end others first when memory runs out: every container on the node would feel it."""
    try:
        Path("/proc/self/oom_score_adj").write_text(_OUT_OF_MEMORY_SCORE)
    except OSError:
        return


if __name__ == "__main__":
    sys.exit(main())
