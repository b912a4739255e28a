"""What the compiled lane decides and counts, against the Python that it stands in for."""

from __future__ import annotations

import time
from math import inf, nan
from types import ModuleType
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from copydesk.common.rpc.frames import Cancel, Load, Request
from copydesk.gateway.metrics import LATENCY_BUCKETS, Histogram
from copydesk.gateway.rates.gcra import Rate, rule
from copydesk.routing import Ending, Ledger, LedgerRules, Quantiles, Ticket
from copydesk.routing.score import better
from tests.unit.gateway.lane_rig import (
    ANSWER,
    BODY,
    COMPLETION,
    CORRECTED,
    CORRECTION,
    SENTENCE,
    Rig,
    RigPort,
    RigSeat,
    answer,
    head,
    request,
)

FIELDS = tuple(name for name in Ledger.__slots__)


counts = st.integers(0, 60)
ages = st.sampled_from([-1.0, 0.0, 0.5, 2.0, 5.0, 100.0])
accounts = st.fixed_dictionaries(
    {
        "in_flight": counts,
        "_heard": counts,
        "_sent_since_load": counts,
        "_capacity": st.integers(1, 64),
        "weight": st.sampled_from([0.1, 0.5, 1.0]),
        "_latency_ms": st.just(nan) | st.floats(0.0, 5_000.0),
        "_tau": st.sampled_from([0.5, 10.0]),
        "_heard_at": st.just(-inf) | ages,
        "_latency_at": ages,
        "_full_until": st.just(-inf) | ages,
    }
)
"""The numbers of a ledger; those that are times say how long ago, above 0, or how long from now."""

TIMES = ("_heard_at", "_latency_at", "_full_until")


def fill(ledger: LedgerRules, account: dict[str, Any], now: float) -> None:
    for name, value in account.items():
        setattr(ledger, name, now - value if name in TIMES else value)


def chosen(ports: list[RigPort], before: list[int]) -> RigPort:
    (one,) = [port for port, requests in zip(ports, before, strict=True) if port.ledger.requests > requests]
    return one


def send(rig: Rig, ports: list[RigPort]) -> RigPort:
    """Send a request, take it back, and return where it went."""
    before = [port.ledger.requests for port in ports]
    client = rig.seat()
    assert client.take(request())
    return chosen(ports, before)


@given(first=accounts, second=accounts)
def test_of_two_pods_it_never_takes_the_worse(
    native: ModuleType, first: dict[str, Any], second: dict[str, Any]
) -> None:
    rig = Rig(native, ports=2)
    rig.learn()
    now = time.monotonic()
    for port, account in zip(rig.ports, (first, second), strict=True):
        fill(port.ledger, account, now)
    standings = {port: port.ledger.standing(now) for port in rig.ports}
    went = send(rig, rig.ports)
    other = next(port for port in rig.ports if port is not went)
    # A microsecond has passed since: what is equal but for that may fall either way.
    assert better(standings[went], standings[other], 1.000_1)


@given(here=accounts, there=accounts, spillover=st.sampled_from([1.0, 1.5, 4.0]))
def test_pods_of_another_zone_are_used_when_those_of_this_are_too_busy(
    native: ModuleType, here: dict[str, Any], there: dict[str, Any], spillover: float
) -> None:
    rig = Rig(native, ports=2)
    rig.learn()
    near, far = rig.ports
    rig.choose_from([near], [far], spillover=spillover)
    now = time.monotonic()
    fill(near.ledger, here, now)
    fill(far.ledger, there, now)
    standings = near.ledger.standing(now), far.ledger.standing(now)
    clear = {better(*standings, ratio) for ratio in (spillover * 0.9999, spillover * 1.0001)}
    assume(len(clear) == 1)
    went = send(rig, rig.ports)
    assert (went is near) is clear.pop()


def test_with_other_zones_both_choices_are_among_two(native: ModuleType) -> None:
    rig = Rig(native, ports=6)
    rig.learn()
    near, far = rig.ports[:3], rig.ports[3:]
    rig.choose_from(near, far, spillover=1.5)
    for _ in range(120):
        send(rig, rig.ports)
    loads = [port.ledger.in_flight for port in rig.ports]
    assert all(loads)
    assert sum(loads[:3]) > sum(loads[3:])


@settings(max_examples=20)
@given(number=st.integers(2, 12), seed=st.integers(1, 2**63))
def test_all_pods_are_used_and_about_alike(native: ModuleType, number: int, seed: int) -> None:
    rig = Rig(native, ports=number, seed=seed)
    rig.learn()
    for _ in range(20 * number):
        send(rig, rig.ports)
    loads = [port.ledger.in_flight for port in rig.ports]
    assert min(loads) >= 10
    assert max(loads) <= 30


def test_two_looks_are_at_two_pods(native: ModuleType) -> None:
    """Were both ever at the same one, the worst would get something."""
    rig = Rig(native, ports=5)
    rig.learn()
    worst = rig.ports[2]
    worst.ledger.in_flight = 10**6
    for _ in range(300):
        assert send(rig, rig.ports) is not worst


def snapshot(ledger: LedgerRules) -> dict[str, float]:
    return {name: getattr(ledger, name) for name in FIELDS}


steps = st.lists(
    st.one_of(
        st.just(("send",)),
        st.tuples(st.just("answer"), st.integers(0, 9), counts, counts, st.integers(0, 64)),
        st.tuples(st.just("leave"), st.integers(0, 9)),
        st.tuples(st.just("refuse"), st.integers(0, 9)),
    ),
    max_size=30,
)


class Charged:
    """A lane with one pod, and a ledger that is charged by tickets at the very moments that the lane tells.

    When a request was sent it tells by the alarm that it asks for: each has an earlier deadline than those before.
    """

    def __init__(self, native: ModuleType, account: dict[str, Any], *, timed: bool) -> None:
        self.rig = Rig(native)
        (self.port,) = self.rig.ports
        self.timed = timed
        self.python = Ledger()
        self.underway: list[tuple[RigSeat, int, Ticket]] = []
        self.rig.takes_over = False
        self._patience = 1e6
        now = time.monotonic()
        for ledger in (self.port.ledger, self.python):
            fill(ledger, account | {"_latency_at": abs(account["_latency_at"])}, now)
            ledger.failures = 3

    def send(self) -> None:
        self._patience -= 1000.0
        self.rig.learn(form=CORRECTION if self.timed else COMPLETION, allowed=self._patience)
        client = self.rig.seat()
        assert client.take(request(body=SENTENCE) if self.timed else request())
        self.rig.lane.flush()
        ticket = Ticket(self.python, self.rig.alarms[-1] - self._patience, timed=self.timed)
        self.underway.append((client, self.port.requests[-1].id, ticket))

    def answer(self, which: int, running: int, queued: int, capacity: int) -> None:
        _, frame_id, ticket = self.underway.pop(which % len(self.underway))
        payload = CORRECTED if self.timed else ANSWER
        assert self.port.port.feed(answer(frame_id, Load(running, queued, capacity), payload)) is None
        now = self.port.ledger.answered_at
        self.python.hear(running, queued, capacity, now)
        ticket.finish(Ending.ANSWERED, now)

    def leave(self, which: int) -> None:
        client, _, ticket = self.underway.pop(which % len(self.underway))
        self.rig.lane.drain()
        client.seat.close()
        forms, *_ = self.rig.lane.drain()
        ticket.finish(Ending.ABANDONED, ticket.started_at + sum(gone[1] for _, gone in forms))

    def refuse(self, which: int) -> None:
        client, _, ticket = self.underway.pop(which % len(self.underway))
        before, earlier = self.port.ledger._latency_at, time.monotonic()
        client.seat.recall()
        at = self.port.ledger._latency_at
        # What taught the lane nothing teaches nothing a moment before either; a moment after it might.
        ticket.finish(Ending.ABANDONED, at if at != before else earlier)

    def check(self) -> None:
        for name in FIELDS:
            lane, python = getattr(self.port.ledger, name), getattr(self.python, name)
            assert lane == pytest.approx(python, rel=1e-6, abs=1e-6, nan_ok=True), name
        assert self.rig.places.underway == self.rig.lane.underway == len(self.underway)


@pytest.mark.parametrize("timed", [False, True])
@given(account=accounts, script=steps)
def test_a_ledger_is_charged_as_by_a_ticket(
    native: ModuleType, timed: bool, account: dict[str, Any], script: list[tuple[Any, ...]]
) -> None:
    charged = Charged(native, account, timed=timed)
    for kind, *how in script:
        if kind == "send" or charged.underway:
            getattr(charged, kind)(*how)
        charged.check()


def test_what_is_handed_back_and_taken_over_stays_charged(native: ModuleType) -> None:
    rig = Rig(native)
    rig.learn()
    (port,) = rig.ports
    port.ledger._latency_ms = 5.0
    client = rig.seat()
    assert client.take(request())
    before = snapshot(port.ledger)
    client.seat.recall()
    assert snapshot(port.ledger) == before
    assert port.ledger.in_flight == 1


# ---- limits


rates = st.builds(Rate, interval=st.integers(10**7, 10**9), burst=st.integers(1, 50))


@given(rate=rates, ahead=st.integers(-5, 60) | st.integers(-(10**13), 10**13), number=st.integers(1, 60))
def test_a_rate_lets_pass_what_the_rule_lets_pass(native: ModuleType, rate: Rate, ahead: int, number: int) -> None:
    """With ten seconds and more between two requests, the microseconds that this takes decide nothing."""
    rig = Rig(native)
    due = native.Cell()
    rig.learn(due=due, interval=rate.interval, burst=rate.burst)
    now = int(time.monotonic() * 1e6)
    expected = due.value = max(0, now + ahead * rate.interval // 2) if abs(ahead) <= 60 else max(0, now + ahead)
    margin = 5_000_000
    for _ in range(number):
        early, late = rule(expected, now, rate), rule(expected, now + margin, rate)
        assume(bool(early.wait) == bool(late.wait))
        client = rig.seat()
        assert client.take(request()) is not bool(early.wait)
        if not early.wait:
            assert abs(due.value - early.due) <= margin
            expected = early.due
    assert rig.lane.underway == rig.places.underway


def test_a_rate_is_the_same_for_all_connections_of_a_client(native: ModuleType) -> None:
    rig = Rig(native, ports=3)
    mine, yours = native.Cell(), native.Cell()
    rig.learn(due=mine, interval=10**9, burst=5)
    rig.learn(head(len(BODY), "Authorization: Bearer you"), due=yours, interval=10**9, burst=3)
    assert [rig.seat().take(request()) for _ in range(8)] == [True] * 5 + [False] * 3
    other = request("Authorization: Bearer you")
    assert [rig.seat().take(other) for _ in range(5)] == [True] * 3 + [False] * 2


@given(limit=st.integers(1, 6), script=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=60))
def test_the_limit_of_concurrency_is_exact(native: ModuleType, limit: int, script: list[tuple[int, int]]) -> None:
    rig = Rig(native)
    inside = native.Cell()
    rig.learn(inside=inside, concurrency=limit)
    (port,) = rig.ports
    underway: list[tuple[Any, int]] = []
    for kind, which in script:
        if kind == 0 or not underway:
            client = rig.seat()
            assert client.take(request()) is (len(underway) < limit)
            rig.lane.flush()
            if client.seat.busy:
                underway.append((client, port.requests[-1].id))
        else:
            client, frame_id = underway.pop(which % len(underway))
            if kind == 1:
                port.port.feed(answer(frame_id))
            elif kind == 2:
                client.seat.close()
            else:
                client.seat.recall()
        assert inside.value == len(underway) == rig.lane.underway


def test_one_that_is_refused_by_its_rate_does_not_count_as_inside(native: ModuleType) -> None:
    rig = Rig(native)
    inside, due = native.Cell(), native.Cell()
    rig.learn(inside=inside, concurrency=9, due=due, interval=10**9, burst=2)
    assert [rig.seat().take(request()) for _ in range(4)] == [True, True, False, False]
    assert inside.value == 2


def test_one_that_is_refused_by_concurrency_pays_no_rate(native: ModuleType) -> None:
    rig = Rig(native)
    inside, due = native.Cell(), native.Cell()
    rig.learn(inside=inside, concurrency=1, due=due, interval=10**9, burst=5)
    first = rig.seat()
    assert first.take(request())
    paid = due.value
    assert not rig.seat().take(request())
    assert due.value == paid


@pytest.mark.parametrize("waiting", [0, 1])
def test_only_as_many_go_through_as_there_is_room_and_none_past_those_who_wait(
    native: ModuleType, waiting: int
) -> None:
    rig = Rig(native)
    rig.learn()
    rig.choose_from(rig.ports, room=3)
    rig.places.underway = 1
    rig.places.waiting = waiting
    assert [rig.seat().take(request()) for _ in range(4)] == [not waiting, not waiting, False, False]


def test_who_waits_is_let_in_when_a_place_is_free(native: ModuleType) -> None:
    rig = Rig(native)
    rig.learn()
    (port,) = rig.ports
    clients = [rig.seat() for _ in range(3)]
    assert all(client.take(request()) for client in clients)
    rig.lane.flush()
    first, second, _ = (sent.id for sent in port.requests)
    port.port.feed(answer(first))
    assert (rig.let_in, rig.places.underway, rig.places.ended) == (0, 2, 1)
    rig.places.waiting = 1
    port.port.feed(answer(second))
    assert (rig.let_in, rig.places.underway, rig.places.ended) == (1, 1, 2)
    clients[2].seat.close()
    assert (rig.let_in, rig.places.underway, rig.places.ended) == (2, 0, 3)


# ---- counts


def durations(native: ModuleType, seconds: float, how: str) -> tuple[Any, float, float]:
    """Have one request take about so long; return what is drained, and between which bounds it took."""
    rig = Rig(native)
    rig.learn()
    (port,) = rig.ports
    client = rig.seat()
    began = time.monotonic()
    assert client.take(request())
    sent = time.monotonic()
    rig.lane.flush()
    while time.monotonic() < began + seconds:
        pass
    before = time.monotonic()
    if how == "answered":
        port.port.feed(answer(port.requests[0].id))
    else:
        client.seat.close()
    return rig.lane.drain(), before - sent, time.monotonic() - began


@pytest.mark.parametrize("seconds", [0.0, 0.001, 0.007, 0.03, 0.06])
@pytest.mark.parametrize("how", ["answered", "gone"])
def test_latencies_fall_into_the_buckets_of_the_gateways_histograms(
    native: ModuleType, seconds: float, how: str
) -> None:
    (forms, latencies, _, handed_back), least, most = durations(native, seconds, how)
    answered, gone = forms[0]
    (count, total, buckets), other = (answered, gone) if how == "answered" else (gone, answered)
    assert (count, other[0], handed_back) == (1, 0, (0, 0.0))
    assert least <= total <= most
    histogram = Histogram()
    histogram.observe(total)
    assert buckets == histogram._counts
    quantiles = Quantiles()
    if how == "answered":
        quantiles.observe(total * 1000)
    assert latencies == quantiles._counts


def test_what_has_been_drained_is_not_drained_again(native: ModuleType) -> None:
    rig = Rig(native)
    rig.learn()
    (port,) = rig.ports
    assert rig.seat().take(request())
    client = rig.seat()
    assert client.take(request())
    rig.lane.flush()
    port.port.feed(answer(port.requests[0].id))
    client.seat.recall()
    assert rig.lane.take_started() == 2
    forms, latencies, _, handed_back = rig.lane.drain()
    number, _, buckets = forms[0][0]
    assert (number, sum(buckets), sum(latencies), handed_back[0]) == (1, 1, 1.0, 1)
    assert handed_back[1] > 0.0
    empty: Any = ((0, 0.0, [0] * (len(LATENCY_BUCKETS) + 1)),) * 2
    forms, latencies, _, handed_back = rig.lane.drain()
    assert (forms, sum(latencies), handed_back) == ([empty] * len(forms), 0.0, (0, 0.0))
    assert rig.lane.take_started() == 0


def test_one_that_is_handed_back_and_refused_is_pythons_to_count(native: ModuleType) -> None:
    rig = Rig(native)
    inside = native.Cell()
    rig.learn(inside=inside, concurrency=5)
    (port,) = rig.ports
    rig.takes_over = False
    client = rig.seat()
    assert client.take(request())
    client.seat.recall()
    rig.lane.flush()
    (sent, cancelled) = port.frames
    assert isinstance(sent, Request)
    assert isinstance(cancelled, Cancel)
    assert cancelled.id == sent.id
    forms, _, _, handed_back = rig.lane.drain()
    assert ([ended[0] for ended in forms[0]], handed_back[0]) == ([0, 0], 1)
    assert (rig.places.underway, rig.places.ended, inside.value, port.ledger.in_flight) == (0, 1, 0, 0)


# ---- deadlines


def test_the_alarm_is_set_for_the_earliest_deadline_and_the_sweep_hands_back_what_is_late(
    native: ModuleType,
) -> None:
    rig = Rig(native)
    rig.learn(allowed=30.0)
    rig.learn(head(len(BODY), "X-Request-Deadline-Ms: 1000"), allowed=1.0)
    late, early = rig.seat("late"), rig.seat("early")
    now = time.monotonic()
    assert late.take(request())
    assert early.take(request("X-Request-Deadline-Ms: 1000"))
    assert rig.seat().take(request())
    assert [round(at - now) for at in rig.alarms] == [30, 1]
    assert rig.lane.sweep(now + 0.5) == pytest.approx(now + 1.0, abs=0.5)
    assert rig.resumed == []
    assert rig.lane.sweep(now + 2.0) == pytest.approx(now + 30.0, abs=0.5)
    (handed,) = rig.resumed
    assert (handed[0], handed[1]) == ("early", "p0")
    assert rig.lane.sweep(now + 29.99) > now + 29.99
    assert rig.lane.sweep(now + 31.0) == inf
    assert len(rig.resumed) == 3
    assert rig.lane.underway == 0
    assert rig.seat().take(request())
    assert len(rig.alarms) == 3


def test_the_deadline_travels_with_the_request(native: ModuleType) -> None:
    rig = Rig(native)
    rig.learn(allowed=0.25, priority=1)
    assert rig.seat().take(request())
    rig.lane.flush()
    ((sent,),) = [port.requests for port in rig.ports]
    assert (sent.deadline_ms, sent.priority, sent.trace) == (250, 1, "")
