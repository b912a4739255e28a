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

from copydesk.loadtest.client import Client, allow_many_connections
from copydesk.loadtest.generator import Flight, fly
from copydesk.loadtest.pulse import Pulse
from copydesk.loadtest.sample import Sample
from copydesk.loadtest.tally import Counter, Watch
from copydesk.loadtest.wire import Assignment, Outcomes, Stop, frame, read_order, read_target, receive

NICENESS = -10
TELL_S = 0.25
"""How often a process tells what it counts, in seconds."""


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read the target, then carry out assignments one after another until the input ends."""
    target = await receive(reader, read_target)
    if target is None:
        return
    client = Client(target)
    underway: asyncio.Task[None] | None = None
    stop = asyncio.Event()
    while (order := await receive(reader, read_order)) is not None:
        if isinstance(order, Stop):
            stop.set()
            continue
        stop = asyncio.Event()
        underway = asyncio.create_task(_carry_out(order, client, writer, stop))
    if underway is not None:
        underway.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await underway
    client.close()


async def _carry_out(
    assignment: Assignment, client: Client, writer: asyncio.StreamWriter, stop: asyncio.Event
) -> None:
    count = len(assignment.offsets)
    indices = range(assignment.first, assignment.first + count * assignment.step, assignment.step)
    flights: list[Flight] = []
    pulse = Pulse()
    gc.collect()
    gc.disable()  # a collection of many live requests takes longer than the schedule allows
    try:
        async with asyncio.TaskGroup() as group:
            flying = group.create_task(
                fly(
                    assignment.offsets,
                    client.send,
                    indices,
                    start=assignment.start,
                    grace=assignment.grace,
                    flights=flights,
                )
            )
            ending = group.create_task(_cancel_at(stop, flying))
            if assignment.watch is not None:
                telling = group.create_task(_tell(flights, assignment.start, assignment.watch, writer))
                flying.add_done_callback(lambda _: telling.cancel())
            beating = group.create_task(pulse.beat())
            flying.add_done_callback(lambda _: ending.cancel())
            flying.add_done_callback(lambda _: beating.cancel())
    finally:
        gc.enable()
    unasked, client.unasked = client.unasked, 0
    writer.write(frame(Outcomes.of([flight.landed() for flight in flights], unasked, pulse.stalls)))
    await writer.drain()


async def _cancel_at(stop: asyncio.Event, flying: asyncio.Task[list[Sample]]) -> None:
    await stop.wait()
    flying.cancel()


async def _tell(flights: list[Flight], start: float, watch: Watch, writer: asyncio.StreamWriter) -> None:
    """Tell what is known of the flights so far, again and again."""
    clock, counter = asyncio.get_running_loop().time, Counter(flights, start, watch)
    await asyncio.sleep(max(0.0, start + watch.begin - clock()))
    while True:
        await asyncio.sleep(TELL_S)
        writer.write(frame(counter.count(clock())))
        await writer.drain()


async def _over_standard_streams() -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sys.stdout)
    await serve(reader, asyncio.StreamWriter(transport, protocol, reader, loop))


def _take_precedence() -> None:
    """Run before what does not keep a schedule, as far as that is allowed.

    The fleet beside it may take all there is of the cores. A process of the real-time class is run when its timer
    is due; one that is merely nice to the others waits for the end of their turns, which is milliseconds.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except OSError:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, NICENESS)


def main() -> None:
    """Be a generator process."""
    # Ctrl-C, `timeout` and systemd reach the whole group. The command decides what it means; this process ends
    # with its standard input.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    allow_many_connections()
    _take_precedence()
    asyncio.run(_over_standard_streams())


if __name__ == "__main__":
    main()
