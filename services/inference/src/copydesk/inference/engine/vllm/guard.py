"""Kills the processes that vLLM has started, once the one that started vLLM is gone, however it went.

vLLM's engine core and its workers would outlive a killed parent, with the memory of the model and the cores. They
are of its process group. So this waits, in a session of its own, for that parent's end, and then kills what is
left of the group: what hangs or is stopped, too.

It is run by its path, with nothing but the standard library, so that it costs ten megabytes and no time.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys


def watch_over(python: str = sys.executable) -> subprocess.Popen[bytes]:
    """Start a guard over the calling process, which must lead its process group."""
    return subprocess.Popen(
        [python, "-I", "-S", __file__, str(os.getpid())],
        env={},  # less what is preloaded for vLLM
        start_new_session=True,
        stdin=subprocess.DEVNULL,
    )


def main(leader: int) -> int:
    """Wait for the end of `leader`, the parent of this process, and kill its group."""
    try:
        watched = os.pidfd_open(leader)
    except ProcessLookupError:
        watched = None
    # A parent that was gone before is nobody's parent any more, and its number may be another's.
    if watched is not None and os.getppid() == leader:
        select.select([watched], [], [])
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
