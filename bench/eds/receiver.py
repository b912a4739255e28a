"""A gateway's ear: it decodes and judges the snapshots of all models as a gateway does those of its own.

`python -m bench.eds.receiver NATS_URL` writes a line once it has heard of every model (their number is the second
argument). A line `begin` on standard input has it start anew; `report` has it print, as JSON, how long after they
were sent snapshots were decoded, how long after they were made changes were known, both in milliseconds, and more.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from bench.eds.cluster import MARK
from copydesk.common.bus import Bus
from copydesk.common.messages import EndpointsSnapshot, endpoints_subject
from copydesk.common.process import run
from copydesk.common.telemetry import configure_logging
from copydesk.routing import Held, Verdict, hear, judge


class Ear:
    """What was heard since `begin`."""

    def __init__(self, models: int) -> None:
        self.complete = asyncio.Event()
        self._models = models
        self._held: dict[str, Held] = {}
        self._known: dict[str, set[str]] = {}
        self._begun_us = 0
        self.begin()

    def begin(self) -> None:
        """Forget the times, not the endpoints."""
        self._begun_us = int(time.monotonic() * 1e6)
        self.snapshots = self.bytes_heard = self.ignored = 0
        self.publish_ms: list[float] = []
        self.change_ms: list[float] = []

    def take(self, snapshot: EndpointsSnapshot) -> None:
        """Hear one snapshot."""
        now = time.monotonic()
        self.publish_ms.append((time.time() - snapshot.sent_at) * 1000)
        self.snapshots += 1
        held = self._held.get(snapshot.model)
        verdict = judge(held, snapshot.epoch, snapshot.generation, now)
        self._held[snapshot.model] = hear(held, snapshot.epoch, snapshot.generation, now)
        if verdict is Verdict.IGNORE:
            self.ignored += 1
        if verdict is Verdict.APPLY:
            self._apply(snapshot, int(now * 1e6))

    def _apply(self, snapshot: EndpointsSnapshot, now_us: int) -> None:
        ids = {endpoint.id for endpoint in snapshot.endpoints}
        for fresh in ids - self._known.get(snapshot.model, set()):
            _, mark, born = fresh.partition(MARK)
            if mark and int(born) >= self._begun_us:
                self.change_ms.append((now_us - int(born)) / 1000)
        self._known[snapshot.model] = ids
        if len(self._known) == self._models:
            self.complete.set()

    def report(self) -> dict[str, object]:
        """All that was heard."""
        return {
            "snapshots": self.snapshots,
            "ignored": self.ignored,
            "endpoints": sum(len(ids) for ids in self._known.values()),
            "publish_ms": self.publish_ms,
            "change_ms": self.change_ms,
        }


async def main(url: str, models: int) -> None:
    """Listen until standard input ends."""
    ear = Ear(models)
    bus = await Bus.connect(url, name="receiver")
    await bus.subscribe(endpoints_subject("*"), EndpointsSnapshot, ear.take)
    await ear.complete.wait()
    print("complete", flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        if line.strip() == "begin":
            ear.begin()
        else:
            print(json.dumps(ear.report()), flush=True)
    await bus.close()


if __name__ == "__main__":
    configure_logging("receiver")
    run(main(sys.argv[1], int(sys.argv[2])))
