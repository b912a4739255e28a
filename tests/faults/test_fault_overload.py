"""Ten times the load that there are pods for: as much as they can is served, the rest is told so at once.

Pods here have no model and take a fixed time for a sentence, so that what a fleet can do is known; the gateway is
the real process. Sentences underway already would be shared, which is more than the pods can do: not here.
"""

from __future__ import annotations

import asyncio
import re
import signal
from collections import Counter
from collections.abc import Sequence

import httpx
import pytest

from copydesk.loadtest import Sample
from tests.faults.conftest import failures, load, view, whole
from tests.fixtures.nats import NatsServer
from tests.integration.gateway.conftest import GatewayProcess, PodProcess, Site, eventually

pytestmark = pytest.mark.faults

SENTENCE_S, AT_ONCE, PODS = 0.2, 4, 2
CAPACITY = PODS * AT_ONCE / SENTENCE_S
"""Sentences a second."""

BURST_S = 12.0
QUEUE = 40
DEADLINE_S = 5.0
ERRORS = re.compile(r'request_seconds_bucket\{route="/v1/correct",outcome="error",le="([^"]+)"\} (\S+)')


async def crowded(site: Site, nats: NatsServer) -> tuple[GatewayProcess, list[PodProcess]]:
    """A gateway and pods, of which the capacity is known."""
    pods = [await site.pod(f"pod-{number}", f"paced:{AT_ONCE}:{SENTENCE_S}") for number in range(PODS)]
    discovery = await site.discovery(nats)
    discovery.announce(*(pod.endpoint() for pod in pods))
    settings = {"queue": QUEUE, "share_sentences": False, "deadline_ms": round(DEADLINE_S * 1000)}
    gateway = await site.gateway(nats.url, **settings)

    async def complete() -> bool:
        return whole(await view(gateway.url))

    await eventually(complete, within=60)
    return gateway, pods


def outcomes(samples: Sequence[Sample]) -> Counter[str]:
    """How many were answered, and of each failure how many."""
    return Counter("answered" if sample.failure is None else str(sample.failure) for sample in samples)


def within(samples: Sequence[Sample], seconds: float) -> int:
    """How many of the answered came before so many seconds after the first was due."""
    begin = samples[0].planned
    return sum(sample.failure is None and sample.finished - begin <= seconds for sample in samples)


async def test_ten_times_the_load_costs_nobody_who_is_accepted_anything(
    site: Site, nats_server: NatsServer
) -> None:
    gateway, pods = await crowded(site, nats_server)
    assert failures(await load(gateway.url, 2.0, CAPACITY / 2)) == []
    can = within(await load(gateway.url, 6.0, CAPACITY * 1.5), 6.0) / 6.0

    samples = await load(gateway.url, BURST_S, CAPACITY * 10)
    told = outcomes(samples)
    answered = told.pop("answered")
    assert len(told) == 1, told
    assert "429" in next(iter(told))
    assert within(samples, BURST_S) / BURST_S >= 0.9 * can
    assert max(sample.latency for sample in samples if sample.failure is None) < DEADLINE_S
    counts = [await pod.counts() for pod in pods]
    assert sum(count.get("expired", 0) + count.get("cancelled", 0) for count in counts) == 0
    assert sum(count["received"] for count in counts) == sum(count["served"] for count in counts) >= answered


async def test_after_it_all_is_as_before(site: Site, nats_server: NatsServer) -> None:
    gateway, _ = await crowded(site, nats_server)
    await load(gateway.url, 4.0, CAPACITY * 10)

    async def calm() -> bool:
        return failures(await load(gateway.url, 1.0, CAPACITY / 2)) == []

    await eventually(calm, within=30)
    assert failures(await load(gateway.url, 3.0, CAPACITY / 2)) == []
    assert (await view(gateway.url))["totals"]["in_flight"] == 0


async def test_who_is_refused_is_told_at_once_and_when_to_come_back_even_if_no_pod_moves(
    site: Site, nats_server: NatsServer
) -> None:
    gateway, pods = await crowded(site, nats_server)
    client = await site.client(gateway)
    for pod in pods:
        pod.send_signal(signal.SIGSTOP)
    waiting = [asyncio.create_task(ask(client, number)) for number in range(60)]
    try:

        async def full() -> bool:
            return bool((await view(gateway.url))["totals"]["queued"] == QUEUE)

        await eventually(full)
        refused = [await ask(client, number) for number in range(2000, 2200)]
    finally:
        for pod in pods:
            pod.send_signal(signal.SIGCONT)
    assert Counter(answer.status_code for answer in refused) == {429: 200}
    assert all(float(answer.headers["Retry-After"]) >= 1 for answer in refused)
    quick, all_of_them = await refusals(client)
    assert quick >= 0.9 * all_of_them >= 180
    await asyncio.gather(*waiting)


async def ask(client: httpx.AsyncClient, number: int) -> httpx.Response:
    return await client.post("/v1/correct", json={"text": f"Client {number} go home."})


async def refusals(client: httpx.AsyncClient) -> tuple[float, float]:
    """How many errors the gateway itself has answered within 25 ms, the bucket beyond 20, and how many in all."""
    buckets = {edge: float(count) for edge, count in ERRORS.findall((await client.get("/metrics")).text)}
    return buckets["0.025"], buckets["+Inf"]
