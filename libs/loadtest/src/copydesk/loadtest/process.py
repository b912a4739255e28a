"""A generator process: `python -m copydesk.loadtest.process`, told over its standard input what to send.

It ends when its standard input does, whatever it is at, so that nothing goes on asking when the command is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys

from copydesk.loadtest.client import Client, Target, allow_many_connections
from copydesk.loadtest.generator import fly
from copydesk.loadtest.wire import Assignment, Outcomes, frame, receive

NICENESS = -10
"""Where that is allowed: the schedule is to be kept while the fleet beside it takes all there is of the cores."""


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read the target, then carry out assignments one after another until the input ends."""
    target = await receive(reader, Target)
    if target is None:
        return
    client = Client(target)
    underway: asyncio.Task[None] | None = None
    while (assignment := await receive(reader, Assignment)) is not None:
        underway = asyncio.create_task(_carry_out(assignment, client, writer))
    if underway is not None:
        underway.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await underway
    client.close()


async def _carry_out(assignment: Assignment, client: Client, writer: asyncio.StreamWriter) -> None:
    count = len(assignment.offsets)
    indices = range(assignment.first, assignment.first + count * assignment.step, assignment.step)
    gc.collect()
    gc.disable()  # a collection of many live requests takes longer than the schedule allows
    try:
        samples = await fly(
            assignment.offsets, client.send, indices, start=assignment.start, grace=assignment.grace
        )
    finally:
        gc.enable()
    writer.write(frame(Outcomes.of(samples)))
    await writer.drain()


async def _over_standard_streams() -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sys.stdout)
    await serve(reader, asyncio.StreamWriter(transport, protocol, reader, loop))


def main() -> None:
    """Be a generator process."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches the whole group; the command decides what it means
    allow_many_connections()
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
    asyncio.run(_over_standard_streams())


if __name__ == "__main__":
    main()
