"""Send requests: open loop, at planned moments whatever the answers do, or closed loop, one after another."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from copydesk.loadtest.plan import Plan
from copydesk.loadtest.report import Report, summarise
from copydesk.loadtest.sample import RequestFailedError, Sample

Send = Callable[[int], Awaitable[None]]
"""Sends the request with this index and returns when it is answered well; raises `RequestFailedError` if not."""

UNFINISHED = "unfinished"
"""The kind of failure of a request that had no answer when the run ended."""


async def run(plan: Plan, send: Send, *, grace: float = 60.0) -> Report:
    """Send a request at each moment of `plan` and report what came of them; see `fly`."""
    samples = await fly(plan.offsets, send, range(len(plan.offsets)), grace=grace)
    return summarise(samples, planned=len(plan.offsets), offered_rate=plan.rate)


async def fly(
    offsets: Sequence[float],
    send: Send,
    indices: Iterable[int],
    *,
    start: float | None = None,
    grace: float = 60.0,
    flights: list[Flight] | None = None,
) -> list[Sample]:
    """Send request `indices[i]` at `start + offsets[i]` for every i, and return what became of each.

    Nothing limits how many are in flight: as in life, the next user does not wait for the last one's answer.
    Moments are kept by the event loop's clock (`start` is one of its times, now if None), to about a millisecond;
    samples say how late the generator was. Requests unanswered `grace` seconds after the last one was due are
    cancelled and count as failed. `flights` gets each request as it is sent, to be watched meanwhile, and to tell
    what had become of them should this be cancelled.
    """
    loop = asyncio.get_running_loop()
    begin = loop.time() if start is None else start
    flights = [] if flights is None else flights
    tasks: list[asyncio.Task[None]] = []
    try:
        for index, offset in zip(indices, offsets, strict=False):
            flight = Flight(begin + offset)
            await asyncio.sleep(max(0.0, flight.planned - loop.time()))
            flights.append(flight)
            tasks.append(asyncio.create_task(flight.fly(send, index)))
        if tasks:
            await asyncio.wait(tasks, timeout=grace)
        return [flight.landed() for flight in flights]
    finally:
        await _cancel(tasks)


async def run_closed(requests: int, send: Send, *, concurrency: int) -> Report:
    """Send `requests` requests, `concurrency` at a time, each as soon as one before it is answered.

    This finds what a fixed number of users get. It says nothing of a service under a given rate: users who
    wait for a slow service send less, so latency here starts when a request is sent.
    """
    if concurrency < 1:
        raise ValueError(f"concurrency is {concurrency}, expected at least 1")
    samples: list[Sample] = []
    indices = iter(range(requests))
    async with asyncio.TaskGroup() as group:
        for _ in range(min(concurrency, requests)):
            group.create_task(_one_user(send, indices, samples))
    return summarise(samples, planned=requests, offered_rate=None)


@dataclass(slots=True)
class Flight:
    """A request under way; both moments in seconds of the loop's clock. `sample` is there once it is over."""

    planned: float
    sent: float = math.nan
    sample: Sample | None = None

    async def fly(self, send: Send, index: int) -> None:
        """Send the request, and keep what becomes of it."""
        clock = asyncio.get_running_loop().time
        self.sent = clock()
        failure: RequestFailedError | None = None
        try:
            await send(index)
        except RequestFailedError as error:
            failure = error
        except Exception as error:  # a failure of a kind the sender does not know still belongs in the report
            failure = RequestFailedError(type(error).__name__, str(error))
        self.sample = Sample(self.planned, self.sent, clock(), failure)

    def landed(self) -> Sample:
        """Return what became of it; without an answer by now, that it failed."""
        if self.sample is not None:
            return self.sample
        now = asyncio.get_running_loop().time()
        failure = RequestFailedError(UNFINISHED, "no answer when the run ended")
        return Sample(self.planned, now if math.isnan(self.sent) else self.sent, now, failure)


async def _one_user(send: Send, indices: Iterator[int], samples: list[Sample]) -> None:
    for index in indices:
        flight = Flight(asyncio.get_running_loop().time())
        await flight.fly(send, index)
        samples.append(flight.landed())


async def _cancel(tasks: Iterable[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
