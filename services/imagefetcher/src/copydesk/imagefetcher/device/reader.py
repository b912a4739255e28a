"""Who reads from a device."""

from __future__ import annotations

import signal
from pathlib import Path

_KILL = 1 << (signal.SIGKILL - 1)


def is_being_killed(thread: int) -> bool:
    """Whether a thread is about to end by a signal: the kernel makes SIGKILL of every one that nobody handles.

    0 is a thread that this process cannot see, in a container without the node's process numbers: of it nothing is
    known, and it waits for its sector.
    """
    if thread == 0:
        return False
    try:
        status = Path(f"/proc/{thread}/status").read_text()
    except OSError:
        return True
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    return bool((int(fields["SigPnd"], 16) | int(fields["ShdPnd"], 16)) & _KILL)
