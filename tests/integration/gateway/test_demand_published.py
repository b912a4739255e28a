"""What gateways as processes tell of their demand over a real NATS, with pods as processes behind them."""

from __future__ import annotations

import asyncio
import math
import re
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable

import httpx
import pytest

from copydesk.common.bus import Bus
from copydesk.common.messages import LATENCY_BOUNDS_MS, DemandReport, demand_subject
from tests.fixtures.fake_pod import MODEL
from tests.fixtures.nats import NatsServer
from tests.integration.gateway.conftest import GatewayProcess, PodProcess, Site, eventually
from tests.integration.gateway.lane.house import Client


class Listener:
    """All reports that were heard, in their order."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.reports: list[DemandReport] = []

    def of(self, gateway: str) -> list[DemandReport]:
        return [report for report in self.reports if report.gateway == gateway]

    async def until(self, gateway: str, condition: Callable[[DemandReport], object]) -> DemandReport:
        """Wait for a report of which that holds."""
        seen = 0

        async def came() -> bool:
            nonlocal seen
            found = self.of(gateway)
            fresh, seen = found[seen:], len(found)
            return any(condition(report) for report in fresh)

        await eventually(came)
        return next(report for report in reversed(self.of(gateway)) if condition(report))


@pytest.fixture
async def listener(nats_server: NatsServer) -> AsyncIterator[Listener]:
    bus = await Bus.connect(nats_server.url, name="test")
    listener = Listener(bus)
    assert await bus.wait_connected(10)
    await bus.subscribe(demand_subject(MODEL, "*"), DemandReport, listener.reports.append)
    yield listener
    await bus.close()


async def serving(
    site: Site, nats: NatsServer, pods: list[PodProcess], **settings: object
) -> tuple[GatewayProcess, httpx.AsyncClient]:
    (await site.discovery(nats)).announce(*(pod.endpoint() for pod in pods))
    gateway = await site.gateway(nats.url, **settings)
    client = await site.client(gateway)

    async def ready() -> bool:
        totals = (await client.get("/v1/fleet")).json()["totals"]
        return bool(totals["eligible"] == len(pods))

    await eventually(ready)
    return gateway, client


async def correct(gateway: GatewayProcess, clients: int, each: int, text: str) -> Counter[int]:
    """Have so many clients correct one text after another; count the answers by their status.

    They send a request in one piece, as most do, and as the lane wants it.
    """
    codes: Counter[int] = Counter()

    async def run(number: int) -> None:
        client = Client(*await asyncio.open_connection("127.0.0.1", gateway.port))
        for time in range(each):
            codes[(await client.ask(text.format(f"{number} at {time}"), path="/v1/correct")).status] += 1
        client.leave()

    await asyncio.gather(*(run(number) for number in range(clients)))
    return codes


def seconds(reports: list[DemandReport], kind: str) -> float:
    """What the means of some reports come to."""
    return math.fsum(getattr(report, kind) * report.interval_s for report in reports)


async def test_demand_is_told_under_load_in_a_burst_and_at_the_end(
    site: Site, nats_server: NatsServer, listener: Listener
) -> None:
    pods = [await site.pod(f"pod-{number}", "paced:4:0.05") for number in range(2)]
    gateway, client = await serving(
        site, nats_server, pods, core="compiled", name="desk-1", queue=8, overcommit=1.0, hedge=False
    )
    first = await listener.until("desk-1", lambda _: True)
    assert (first.completed, first.in_flight, first.queued, first.closing) == (0, 0.0, 0.0, False)

    # No more than the pods run at once: no one waits, and most go by the lane.
    assert await correct(gateway, 6, 20, "Client {} go home.") == {200: 120}
    calm = await listener.until("desk-1", lambda report: report.completed == 120 and not report.in_flight)
    assert (calm.failed, calm.shed) == (0, 0)
    heard = listener.of("desk-1")
    assert seconds(heard, "in_flight") == pytest.approx(calm.latency.at_pods_s, rel=0.02)
    assert 120 * 0.05 <= calm.latency.at_pods_s <= calm.latency.total_s
    assert max(report.in_flight for report in heard) <= 6.0
    assert sum(calm.latency.counts) == 120
    assert sum(calm.latency.counts[: LATENCY_BOUNDS_MS.index(35)]) == 0
    metrics = (await client.get("/metrics")).text
    (carried,) = re.findall(r'lane_requests_total\{ending="answered"\} (\d+)', metrics)
    assert int(carried) >= 60
    assert 'copydesk_gateway_work_total{ending="completed"} 120' in metrics

    # Far more than run and wait: what is refused is told, and so is what waits.
    codes = await correct(gateway, 60, 2, "Reader {} go home.")
    assert codes.keys() == {200, 429}
    after = await listener.until(
        "desk-1", lambda report: report.completed + report.shed == 240 and not report.in_flight
    )
    assert (after.completed - 120, after.shed, after.failed) == (codes[200], codes[429], 0)
    heard = listener.of("desk-1")
    assert seconds(heard, "in_flight") == pytest.approx(after.latency.at_pods_s, rel=0.02)
    assert seconds(heard, "queued") >= 0.8 * (after.latency.total_s - after.latency.at_pods_s) > 0.0

    # Ten sentences are ten requests to pods.
    assert await correct(gateway, 1, 1, " ".join(f"They {word} go {{0}}." for word in "abcdefghij")) == {200: 1}
    ten = await listener.until("desk-1", lambda report: report.completed > after.completed)
    assert ten.completed + ten.shed == after.completed + after.shed + 10

    gateway.terminate()
    assert await gateway.ended() == 0
    last = await listener.until("desk-1", lambda report: report.closing)
    assert (last.completed, last.in_flight, last.queued) == (ten.completed, 0.0, 0.0)
    reports = listener.of("desk-1")
    assert reports[-1] is last
    assert [report.sequence for report in reports] == sorted({report.sequence for report in reports})
    assert {report.started_at for report in reports} == {last.started_at}
    assert sum([(await pod.counts())["received"] for pod in pods]) == last.completed


async def test_what_is_underway_is_told_until_it_is_answered_and_a_pause_is_no_jump(
    site: Site, nats_server: NatsServer, listener: Listener
) -> None:
    pods = [await site.pod("pod-0", "slow:16:2.5")]
    gateway, client = await serving(site, nats_server, pods, name="desk-2")
    texts = [f"She go {number} times." for number in range(3)]
    underway = [asyncio.create_task(client.post("/v1/correct", json={"text": text})) for text in texts]
    await listener.until("desk-2", lambda report: report.in_flight > 0.0)
    gateway.send_signal(signal.SIGSTOP)
    await asyncio.sleep(1.5)
    gateway.send_signal(signal.SIGCONT)
    late = await listener.until("desk-2", lambda report: report.interval_s > 1.3)
    assert late.in_flight == pytest.approx(3.0, abs=0.2)
    gateway.terminate()
    assert [answer.status_code for answer in await asyncio.gather(*underway)] == [200] * 3
    last = await listener.until("desk-2", lambda report: report.closing)
    assert last.completed == 3
    assert seconds(listener.of("desk-2"), "in_flight") == pytest.approx(last.latency.at_pods_s, rel=0.02)


async def test_idle_gateways_of_one_machine_have_names_of_their_own(
    site: Site, nats_server: NatsServer, listener: Listener
) -> None:
    for _ in range(2):
        await site.gateway(nats_server.url)

    async def both() -> bool:
        return len({report.gateway for report in listener.reports}) == 2

    await eventually(both)
    assert all(report.in_flight == report.queued == report.completed == 0 for report in listener.reports)
