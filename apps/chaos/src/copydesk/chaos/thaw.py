"""Has frozen processes go on once whoever froze them is gone: `python -m copydesk.chaos.thaw PID...`.

A process that is stopped by a signal stays so for ever, and who is killed by SIGKILL undoes nothing. This one
waits for the end of its standard input, which comes with the end of whoever holds the pipe, however that ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager


@asynccontextmanager
async def thawed_anyhow(pids: Sequence[int]) -> AsyncIterator[None]:
    """Have these processes go on at the end, and also if this process is killed before that."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "copydesk.chaos.thaw", *map(str, pids)),
        stdin=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield
    finally:
        thaw(pids)
        if process.stdin is not None:
            process.stdin.close()
        await process.wait()


def thaw(pids: Iterable[int]) -> None:
    """Have them go on; those that have ended are passed over."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


if __name__ == "__main__":
    sys.stdin.buffer.read()
    thaw(map(int, sys.argv[1:]))
