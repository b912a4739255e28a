"""The gate: who is let in, how often, how many at once, and that everybody is counted out again."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.gateway.access import Gatekeeper, Release
from copydesk.gateway.cells import Cell
from copydesk.gateway.faults import ApiError
from copydesk.gateway.keys import KeyLimits, KeyRing
from copydesk.gateway.rates import ClosedMeter, LocalMeter, OnRuling, Rate


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class SlowMeter:
    """Decides when told to, as one that asks elsewhere does."""

    def __init__(self) -> None:
        self.asked: list[OnRuling] = []

    def spend(self, client: str, rate: Rate, on_ruling: OnRuling) -> None:
        del client, rate
        self.asked.append(on_ruling)


class Visitor:
    """One request at the gate, and what it was told."""

    def __init__(self, gatekeeper: Gatekeeper, client: str = "web") -> None:
        self.told: list[str] = []
        self.errors: list[ApiError] = []
        self.release: Release = gatekeeper.enter(client, lambda: self.told.append("in"), self._on_refused)

    def _on_refused(self, error: ApiError) -> None:
        self.told.append(error.code)
        self.errors.append(error)


def ring(**limits: float) -> KeyRing:
    stated = KeyLimits(**limits)  # type: ignore[arg-type]
    return KeyRing((("web", hashlib.sha256(b"k1").digest()),), {"web": stated})


def gate(clock: Callable[[], float], **limits: float) -> Gatekeeper:
    gatekeeper = Gatekeeper(LocalMeter(clock))
    gatekeeper.use(ring(**limits))
    return gatekeeper


def test_without_keys_and_limits_anybody_comes_in_uncounted() -> None:
    gatekeeper = Gatekeeper(ClosedMeter())
    assert gatekeeper.authorize({}) == ""
    assert not gatekeeper.limited("")
    assert [Visitor(gatekeeper, "").told for _ in range(100)] == [["in"]] * 100
    assert gatekeeper.inside("") == 0


def test_keys_are_read_from_the_headers() -> None:
    gatekeeper = gate(Clock())
    assert gatekeeper.authorize({b"authorization": b"Bearer k1"}) == "web"
    for headers in ({}, {b"authorization": b"Bearer k2"}, {b"authorization": b"Bearer \xff"}):
        with pytest.raises(ApiError, match="invalid_api_key"):
            gatekeeper.authorize(headers)


def test_until_all_keys_are_read_an_unknown_one_is_asked_to_come_back() -> None:
    gatekeeper = gate(Clock())
    gatekeeper.complete = False
    assert gatekeeper.check("Bearer k1") == "web"
    with pytest.raises(ApiError) as caught:
        gatekeeper.check("Bearer k2")
    assert (caught.value.status, caught.value.code, caught.value.retry_after) == (503, "keys_unavailable", 1)
    with pytest.raises(ApiError, match="invalid_api_key"):
        gatekeeper.check(None)


def test_a_client_that_asks_too_often_is_told_when_to_come_back() -> None:
    clock = Clock()
    gatekeeper = gate(clock, requests_per_second=0.1, burst=2)
    visitors = [Visitor(gatekeeper) for _ in range(3)]
    assert [visitor.told for visitor in visitors] == [["in"], ["in"], ["rate_limited"]]
    (error,) = visitors[2].errors
    assert (error.status, error.retry_after) == (429, 10)
    clock.now += 9.9
    assert Visitor(gatekeeper).told == ["rate_limited"]
    clock.now += 0.2
    assert Visitor(gatekeeper).told == ["in"]


def test_a_client_with_too_many_inside_waits_for_one_to_leave() -> None:
    gatekeeper = gate(Clock(), concurrency=2)
    first, second, third = (Visitor(gatekeeper) for _ in range(3))
    assert third.told == ["too_many_concurrent"]
    assert (third.errors[0].status, third.errors[0].limit, third.errors[0].retry_after) == (429, 2, 1)
    third.release()
    assert Visitor(gatekeeper).told == ["too_many_concurrent"]
    first.release()
    first.release()
    assert gatekeeper.inside("web") == 1
    assert Visitor(gatekeeper).told == ["in"]
    assert second.told == ["in"]


def test_what_is_refused_for_being_too_many_does_not_use_up_the_rate() -> None:
    gatekeeper = gate(Clock(), requests_per_second=1, burst=2, concurrency=1)
    inside = Visitor(gatekeeper)
    assert {Visitor(gatekeeper).told[0] for _ in range(10)} == {"too_many_concurrent"}
    inside.release()
    assert Visitor(gatekeeper).told == ["in"]


def test_defaults_hold_for_keys_that_say_nothing_and_for_all_together_where_keys_are_off() -> None:
    default = KeyLimits(requests_per_second=1, burst=1)
    gatekeeper = Gatekeeper(LocalMeter(Clock()), default)
    assert [Visitor(gatekeeper, "").told for _ in range(2)] == [["in"], ["rate_limited"]]
    gatekeeper.use(ring(requests_per_second=3))
    assert [Visitor(gatekeeper).told[0] for _ in range(4)] == ["in", "in", "in", "rate_limited"]
    gatekeeper.use(ring())
    assert [Visitor(gatekeeper, "batch").told[0] for _ in range(2)] == ["in", "rate_limited"]


def test_where_the_rate_cannot_be_checked_a_closed_gate_says_so() -> None:
    gatekeeper = Gatekeeper(ClosedMeter())
    gatekeeper.use(ring(requests_per_second=5))
    visitor = Visitor(gatekeeper)
    assert visitor.told == ["limits_unavailable"]
    assert (visitor.errors[0].status, visitor.errors[0].retry_after) == (503, 1)
    assert gatekeeper.inside("web") == 0


def test_a_client_that_left_before_the_decision_is_not_told_and_not_counted() -> None:
    meter = SlowMeter()
    gatekeeper = Gatekeeper(meter)
    gatekeeper.use(ring(requests_per_second=5, concurrency=1))
    left = Visitor(gatekeeper)
    assert gatekeeper.inside("web") == 1
    assert Visitor(gatekeeper).told == ["too_many_concurrent"]
    left.release()
    meter.asked[0](None)
    assert (left.told, gatekeeper.inside("web")) == ([], 0)


@given(st.lists(st.tuples(st.integers(0, 7), st.sampled_from(["enter", "pass", "refuse", "release"]))))
def test_in_whatever_order_things_happen_those_inside_are_those_who_are(steps: list[tuple[int, str]]) -> None:
    meter = SlowMeter()
    gatekeeper = Gatekeeper(meter)
    gatekeeper.use(ring(requests_per_second=5, concurrency=4))
    visits: dict[int, tuple[Visitor, OnRuling | None]] = {}
    inside: set[int] = set()
    for number, step in steps:
        if step == "enter" and number not in visits:
            asked = len(meter.asked)
            visitor = Visitor(gatekeeper)
            visits[number] = (visitor, meter.asked[-1] if len(meter.asked) > asked else None)
            assert (len(inside) < 4) is (visitor.told == [])
            if not visitor.told:
                inside.add(number)
        elif step in ("pass", "refuse") and number in visits:
            visitor, ruling = visits[number]
            if ruling is not None and not visitor.told:
                ruling(None if step == "pass" else ApiError(429, "rate_limited", "no"))
                if step == "refuse":
                    inside.discard(number)
        elif step == "release" and number in visits:
            visits.pop(number)[0].release()
            inside.discard(number)
        assert gatekeeper.inside("web") == len(inside)


async def test_a_visit_lasts_as_long_as_its_block_however_that_ends() -> None:
    gatekeeper = gate(Clock(), concurrency=1)
    async with gatekeeper.visit("web"):
        assert gatekeeper.inside("web") == 1
        with pytest.raises(ApiError, match="too_many_concurrent"):
            async with gatekeeper.visit("web"):
                pytest.fail("two are inside")
    with pytest.raises(KeyError):
        async with gatekeeper.visit("web"):
            raise KeyError
    assert gatekeeper.inside("web") == 0


async def test_a_visit_that_is_cancelled_while_it_waits_is_not_counted() -> None:
    meter = SlowMeter()
    gatekeeper = Gatekeeper(meter)
    gatekeeper.use(ring(requests_per_second=5, concurrency=1))

    async def visit() -> None:
        async with gatekeeper.visit("web"):
            pytest.fail("nobody let it in")

    task = asyncio.create_task(visit())
    await asyncio.sleep(0)
    assert gatekeeper.inside("web") == 1
    task.cancel()
    await asyncio.wait([task])
    meter.asked[0](None)
    assert gatekeeper.inside("web") == 0


def test_states_that_say_nothing_any_more_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("copydesk.gateway.cells.PRUNE_AT", 10)
    meter = LocalMeter(clock)
    rulings: list[ApiError | None] = []
    for number in range(1000):
        clock.now += 1
        meter.spend(f"client-{number}", Rate.of(10, 1), rulings.append)
    assert rulings == [None] * 1000
    assert len(meter) <= 11


def test_a_clients_cells_stay_its_own_and_count_for_whoever_holds_them() -> None:
    clock = Clock()
    meter = LocalMeter(clock)
    gatekeeper = Gatekeeper(meter)
    gatekeeper.use(ring(requests_per_second=1, burst=1, concurrency=1))
    inside, due = gatekeeper.inside_cell("web"), meter.due_cell("web")
    assert (inside.value, due.value) == (0, 0)
    inside.value += 1
    assert Visitor(gatekeeper).told == ["too_many_concurrent"]
    inside.value -= 1
    visitor = Visitor(gatekeeper)
    assert (visitor.told, inside.value) == (["in"], 1)
    assert due.value > clock() * 1_000_000
    visitor.release()
    assert (inside.value, gatekeeper.inside_cell("web"), meter.due_cell("web")) == (0, inside, due)
    assert gatekeeper.meter is meter


def test_cells_of_clients_with_nobody_inside_are_dropped_and_those_who_hold_any_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("copydesk.gateway.cells.PRUNE_AT", 10)
    made: list[Cell] = []

    def new_cell() -> Cell:
        made.append(Cell())
        return made[-1]

    gatekeeper = Gatekeeper(ClosedMeter(), KeyLimits(concurrency=3), new_cell=new_cell)
    pruned: list[int] = []
    gatekeeper.on_prune = lambda: pruned.append(len(made))
    busy = [Visitor(gatekeeper, f"busy-{number}") for number in range(3)]
    for number in range(7):
        Visitor(gatekeeper, f"client-{number}").release()
    assert (len(made), pruned) == (10, [])
    Visitor(gatekeeper, "one-more")
    assert (len(made), pruned) == (11, [10])
    assert [gatekeeper.inside(name) for name in ("busy-0", "client-0", "one-more")] == [1, 0, 1]
    assert gatekeeper.inside_cell("busy-0") is made[0]
    assert gatekeeper.inside_cell("client-0") is made[11]
    for visitor in busy:
        visitor.release()
    assert made[0].value == 0


def test_a_pruned_meter_tells_those_who_hold_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("copydesk.gateway.cells.PRUNE_AT", 2)
    meter = LocalMeter(Clock())
    pruned: list[int] = []
    meter.on_prune = lambda: pruned.append(len(meter))
    meter.spend("first", Rate.of(10, 1), lambda _: None)
    first = meter.due_cell("first")
    meter.due_cell("idle")
    assert pruned == []
    meter.due_cell("third")
    assert pruned == [1]
    assert meter.due_cell("first") is first


def test_who_lets_in_by_the_same_rules_hears_of_other_ones() -> None:
    gatekeeper = Gatekeeper(ClosedMeter(), KeyLimits(concurrency=7))
    seen: list[int | None] = []
    gatekeeper.on_change = lambda: seen.append(gatekeeper.allowance_of("web").concurrency)
    gatekeeper.use(ring(concurrency=3))
    gatekeeper.use(ring())
    gatekeeper.use(None)
    assert seen == [3, 7, 7]
