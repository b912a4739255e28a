"""Kills the processes that vLLM has started, once the one that started vLLM is gone, however it went.

vLLM's engine core and its workers would outlive a killed parent, with the memory of the model and the cores. They
are of its process group. So this waits, in a session of its own, for that parent's end, and then kills what is
left of the group: what hangs or is stopped, too. Python's resource trackers among them end by themselves once all
others have: they remove the shared memory that the dead have left.

It is run by its path, with nothing but the standard library, so that it costs ten megabytes and no time.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

_TRACKER_SECONDS = 5.0
_LOOK_SECONDS = 0.02


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
    kill_group(leader)
    return 0


def kill_group(group: int) -> None:
    """Kill all processes of a group, trackers last, and only if they do not end by themselves."""
    deadline = time.monotonic() + _TRACKER_SECONDS
    while (members := _members(group)) and time.monotonic() < deadline:
        for pid, title in members.items():
            if b"resource_tracker" not in title:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(_LOOK_SECONDS)
    if members:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


def _members(group: int) -> dict[int, bytes]:
    """Return the processes of a group that are not dead, with their command lines."""
    found: dict[int, bytes] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, of_group = (folder / "stat").read_bytes().rpartition(b")")[2].split()[:3]
            if int(of_group) == group and state not in {b"Z", b"X"}:
                found[int(folder.name)] = (folder / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
