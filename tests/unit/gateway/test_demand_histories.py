"""Whatever happens to requests, reports say what an independent count says: pods' own word, and the clients'."""

from __future__ import annotations

import asyncio
import itertools
import random
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.common.messages import LATENCY_BOUNDS_MS, DemandReport
from copydesk.common.rpc import Priority, Response, Status, TcpAddress
from copydesk.common.tasks import CorrectSentence
from copydesk.gateway.dispatch import Delivery, Dispatch
from copydesk.gateway.faults import ApiError
from copydesk.gateway.lane.resumption import Resumption
from copydesk.gateway.reporter import Reporter
from copydesk.gateway.service import Gateway
from copydesk.routing import Ticket
from tests.fixtures.fake_pod import MODEL
from tests.unit.gateway.virtual_fleet import Call, VirtualChannel, VirtualFleet
from tests.unit.loadtest.virtual_time import run_virtually

index = st.integers(0, 40)
step = st.one_of(
    st.tuples(
        st.just("submit"), st.sampled_from([0.0, 0.05, 0.5, 2.0, 5.0]), st.sampled_from(Priority), st.booleans()
    ),
    st.tuples(st.just("submit"), st.just(2.0), st.just(Priority.INTERACTIVE), st.booleans()),
    st.tuples(st.just("resume"), st.sampled_from([0.05, 0.5, 5.0])),
    st.tuples(st.just("end"), index, st.just(Status.OK)),
    st.tuples(st.just("end"), index, st.sampled_from(Status)),
    st.tuples(st.just("chunk"), index),
    st.tuples(st.just("cancel"), index),
    st.tuples(st.just("lose"), st.integers(0, 1)),
    st.tuples(st.just("drain"), st.integers(0, 1)),
    st.tuples(st.just("ask_another"), index),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.01, 0.1, 0.6, 3.0])),
    st.tuples(st.just("burst"), st.integers(2, 8), st.sampled_from([0.05, 0.5, 2.0])),
    st.tuples(st.just("report")),
)
Script = list[tuple[Any, ...]]


@dataclass
class Span:
    """From when until when something was."""

    began: float
    ended: float = inf

    def within(self, since: float, until: float) -> float:
        return max(0.0, min(self.ended, until) - max(self.began, since))


@dataclass
class Story:
    """One request as seen from outside: since when, until when, and when which pod had it."""

    whole: Span
    deadline: float
    at_pods: list[Span] = field(default_factory=list)
    outcome: Delivery | ApiError | None = None
    answered_after: float = 0.0

    def waited(self, since: float, until: float) -> float:
        """The time in which no pod had it."""
        edges = sorted(
            {since, until, *(edge for span in (*self.at_pods, self.whole) for edge in (span.began, span.ended))}
        )
        alone = 0.0
        for begin, end in itertools.pairwise(edges):
            if since <= begin < until and not any(span.began <= begin < span.ended for span in self.at_pods):
                alone += self.whole.within(begin, min(end, until))
        return alone


class Calls(dict[int, Call]):
    """The requests that a pod has, which notes when each came and went."""

    def __init__(self, story: Callable[[], Story]) -> None:
        super().__init__()
        self._story = story
        self._spans: dict[int, Span] = {}

    def __setitem__(self, id_: int, call: Call) -> None:
        super().__setitem__(id_, call)
        self._spans[id_] = span = Span(asyncio.get_running_loop().time())
        self._story().at_pods.append(span)

    def pop(self, id_: int, *default: Any) -> Any:
        if id_ in self:
            self._spans[id_].ended = asyncio.get_running_loop().time()
        return super().pop(id_, *default)


class World(VirtualFleet):
    """Two pods that do what the script says, and the story of each request."""

    gateway_: Gateway

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch)
        self.loop = asyncio.get_running_loop()
        self.stories: list[Story] = []
        self.dispatches: list[Dispatch] = []
        self.reports: list[DemandReport] = []
        for number in range(2):
            self.pod(f"p{number}", capacity=1)

    async def open(self) -> None:
        self.gateway_ = await self.gateway(
            queue=3, eject_failures=3, eject_ms=100, eject_silence_ms=200, overcommit=1.0
        )
        demand = self.gateway_.dispatcher.demand
        self.since = self.loop.time()
        self.reporter = Reporter(demand, model=MODEL, gateway="g", started_at=1.0, now=self.since)

    async def _open(self, address: TcpAddress, *, on_drain: Any, on_close: Any, **how: Any) -> VirtualChannel:
        channel = await super()._open(address, on_drain=on_drain, on_close=on_close, **how)
        send, adopt = channel.send, channel.adopt
        sending: list[int] = []
        channel.calls = Calls(lambda: self.stories[sending[-1]])

        def watched(number: int, on_reply: Callable[[Response], None]) -> Callable[[Response], None]:
            began = self.loop.time()

            def reply(response: Response) -> None:
                if response.status is Status.OK:
                    self.stories[number].answered_after = self.loop.time() - began
                on_reply(response)

            return reply

        def watched_send(payload: bytes, *, on_reply: Any, **named: Any) -> int:
            number = int(msgspec.msgpack.decode(payload, type=CorrectSentence).text)
            sending.append(number)
            return send(payload, on_reply=watched(number, on_reply), **named)

        def watched_adopt(request_id: int, deadline: float, on_reply: Any, on_chunk: Any = None) -> None:
            sending.append(request_id - 1_000)
            adopt(request_id, deadline, watched(request_id - 1_000, on_reply), on_chunk)

        channel.send, channel.adopt = watched_send, watched_adopt  # type: ignore[method-assign]
        return channel

    def held(self) -> list[Call]:
        return [
            call for pod in self.pods.values() if pod.channel is not None for call in pod.channel.calls.values()
        ]

    def begin(self, seconds: float) -> tuple[bytes, Callable[[Delivery | ApiError], None]]:
        number, now = len(self.stories), self.loop.time()
        self.stories.append(story := Story(Span(now), now + seconds))

        def on_done(outcome: Delivery | ApiError) -> None:
            story.whole.ended, story.outcome = self.loop.time(), outcome

        return msgspec.msgpack.encode(CorrectSentence(str(number))), on_done

    def submit(self, seconds: float, priority: Priority, stream: bool) -> None:
        payload, on_done = self.begin(seconds)
        deadline = self.stories[-1].deadline
        on_chunk = (lambda _part: None) if stream else None
        self.dispatches.append(
            self.gateway_.dispatcher.submit(payload, deadline, on_done, priority=priority, on_chunk=on_chunk)
        )

    def burst(self, number: int, seconds: float) -> None:
        for _ in range(number):
            self.submit(seconds, Priority.INTERACTIVE, stream=False)

    def resume(self, seconds: float) -> None:
        """One that somebody else has let in and sent to a pod."""
        dispatcher, now = self.gateway_.dispatcher, self.loop.time()
        pod = self.gateway_.fleet.pick()
        if pod is None or not dispatcher.gate.enter():
            return
        Ticket(pod.ledger, now)
        payload, on_done = self.begin(seconds)
        where = Resumption(pod, 1_000 + len(self.stories) - 1, now, now + seconds, "a-request")
        self.dispatches.append(dispatcher.resume(payload, on_done, where, Priority.INTERACTIVE))

    def end(self, which: int, status: Status) -> None:
        if calls := self.held():
            calls[which % len(calls)].end(status)

    def chunk(self, which: int) -> None:
        if calls := self.held():
            calls[which % len(calls)].chunk()

    def cancel(self, which: int) -> None:
        if self.dispatches:
            which %= len(self.dispatches)
            self.dispatches[which].cancel()
            self.stories[which].whole.ended = min(self.stories[which].whole.ended, self.loop.time())

    def lose(self, which: int) -> None:
        channel = self.pods[1000 + which].channel
        if channel is not None:
            channel.lose()

    def drain(self, which: int) -> None:
        channel = self.pods[1000 + which].channel
        if channel is not None and not channel.closed:
            channel.drain()

    def ask_another(self, which: int) -> None:
        if self.dispatches:
            self.dispatches[which % len(self.dispatches)]._try_beside("hedge")

    def report(self) -> None:
        now = self.loop.time()
        report = self.reporter.report(now, 0.0)
        self.reports.append(report)
        assert report.sequence == len(self.reports)
        assert report.interval_s == pytest.approx(now - self.since)
        if now > self.since:
            at_pods = sum(span.within(self.since, now) for story in self.stories for span in story.at_pods)
            waited = sum(story.waited(self.since, now) for story in self.stories)
            assert report.in_flight * report.interval_s == pytest.approx(at_pods, abs=1e-6)
            assert report.queued * report.interval_s == pytest.approx(waited, abs=1e-6)
        self.since = now
        self.check_totals(report)

    def check_totals(self, report: DemandReport) -> None:
        answered = [story for story in self.stories if isinstance(story.outcome, Delivery)]
        latencies = [story.whole.ended - story.whole.began for story in answered]
        counts = [0] * (len(LATENCY_BOUNDS_MS) + 1)
        for latency in latencies:
            counts[bisect_left([bound / 1000 for bound in LATENCY_BOUNDS_MS], latency)] += 1
        endings = [ending(story) for story in self.stories]
        assert (report.completed, report.failed, report.shed) == (
            len(answered),
            endings.count("failed"),
            endings.count("shed"),
        )
        assert report.latency.counts == tuple(counts)
        assert report.latency.total_s == pytest.approx(sum(latencies), abs=1e-6)
        assert report.latency.at_pods_s == pytest.approx(sum(s.answered_after for s in answered), abs=1e-6)


def ending(story: Story) -> str:
    """What an error means for the demand, told from its code and from where the request has been."""
    if not isinstance(story.outcome, ApiError):
        return ""
    code = story.outcome.code
    if code in ("overloaded", "no_endpoints"):
        return "shed"
    if code == "deadline_exceeded":
        late = story.deadline <= story.whole.began
        return "failed" if story.at_pods or late else "shed"
    return "" if code == "refused_by_model" else "failed"


async def play(monkeypatch: pytest.MonkeyPatch, script: Script, seed: int) -> None:
    monkeypatch.setattr("random.random", random.Random(seed).random)
    world = World(monkeypatch)
    await world.open()
    for name, *how in script:
        if name == "wait":
            await asyncio.sleep(how[0])
        else:
            getattr(world, name)(*how)
    await asyncio.sleep(0.0)
    await asyncio.sleep(0.0)
    world.report()
    await asyncio.sleep(10.0)
    world.report()
    await asyncio.sleep(1.0)
    world.report()
    assert (world.reports[-1].in_flight, world.reports[-1].queued) == (0.0, 0.0)
    await world.gateway_.close()


@pytest.fixture(scope="module")
def patches() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@given(script=st.lists(step, max_size=50), seed=st.integers(0, 1000))
def test_reports_equal_an_independent_count(patches: pytest.MonkeyPatch, script: Script, seed: int) -> None:
    run_virtually(play(patches, script, seed))
