"""Who reads from a device."""

from __future__ import annotations

import signal
from pathlib import Path

_KILL = 1 << (signal.SIGKILL - 1)


def is_being_killed(thread: int) -> bool:
    """Whether a thread is about to end by a signal: the kernel makes SIGKILL of every one that nobody handles."""
    try:
        status = Path(f"/proc/{thread}/status").read_text()
    except OSError:
        return True
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    return bool((int(fields["SigPnd"], 16) | int(fields["ShdPnd"], 16)) & _KILL)
