"""What the compiled lane holds on to once a request is over: nothing. Nor does it matter which part goes first."""

from __future__ import annotations

import gc
import itertools
import random
import sys
import tracemalloc
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

import psutil
import pytest

from tests.unit.gateway.lane_rig import Rig, answer, request


class Owner:
    """Somebody whose references can be counted, and who does not outlive them."""


class Bench:
    """Clients and pods that are counted."""

    def __init__(self, native: ModuleType) -> None:
        self.rig = Rig(native, ports=0)
        self.inside = native.Cell()
        self.due = native.Cell()
        self.rig.learn(inside=self.inside, concurrency=100, due=self.due, interval=1, burst=1_000_000)
        self.pods = [Owner() for _ in range(2)]
        self.sent: list[tuple[int, int]] = []
        self.ledgers = [self.rig.storage.ledger() for _ in self.pods]
        self.ports = [
            native.Port(
                lane=self.rig.lane, owner=pod, account=ledger, write=self._writer(index), digest=b"", most=1 << 22
            )
            for index, (pod, ledger) in enumerate(zip(self.pods, self.ledgers, strict=True))
        ]
        self.clients = [Owner() for _ in range(4)]
        self.answers = 0
        self.seats = [
            native.Seat(lane=self.rig.lane, owner=client, write=self._answered) for client in self.clients
        ]
        self.rig.lane.choose_from(self.ports, [], 1_000, 1.5)
        self.data = request()

    def _writer(self, index: int) -> Callable[[bytes], None]:
        def write(data: bytes) -> None:
            self.sent.append(
                (index, int.from_bytes(data[7:15], "big"))
            )  # behind the length, the array and the tag

        return write

    def _answered(self, data: bytes) -> None:
        self.answers += 1

    def round(self, how: int) -> None:
        """One request, to one of its ends."""
        seat = self.seats[how % 4]
        assert seat.take(self.data)
        self.sent.clear()
        self.rig.lane.flush()
        ((index, frame_id),) = self.sent
        if how % 3 == 0:
            seat.recall()
        elif how % 50 == 1:
            self.ports[index].feed(answer(frame_id, payload=b"\xc0"))
        else:
            self.ports[index].feed(answer(frame_id))
        self.rig.resumed.clear()

    def counts(self) -> list[int]:
        held = [*self.pods, *self.clients, *self.ports, *self.seats, self.data, self.rig.lane, self.inside]
        return [sys.getrefcount(one) for one in held]


def test_a_hundred_thousand_requests_leave_nothing_behind(native: ModuleType) -> None:
    bench = Bench(native)
    for how in range(2_000):
        bench.round(how)
    gc.collect()
    before, memory = bench.counts(), psutil.Process().memory_info().rss
    for how in range(100_000):
        bench.round(how)
    gc.collect()
    assert bench.counts() == before
    assert psutil.Process().memory_info().rss - memory < 4 << 20
    # Those that were handed back are still charged: who takes one over sees to that.
    assert (bench.rig.lane.underway, bench.rig.places.underway, bench.inside.value) == (0, 0, 0)
    assert bench.answers > 60_000


def test_clients_that_come_and_go_are_let_go(native: ModuleType) -> None:
    bench = Bench(native)
    gone: list[weakref.ref[Owner]] = []
    for how in range(300):
        client = Owner()
        gone.append(weakref.ref(client))
        seat = native.Seat(lane=bench.rig.lane, owner=client, write=bench._answered)
        assert seat.take(bench.data)
        if how % 3 == 0:
            seat.recall()
            bench.rig.resumed.clear()
        seat.close()
        del client, seat
    bench.rig.lane.flush()
    assert [client() for client in gone] == [None] * 300
    assert (bench.rig.lane.underway, bench.rig.places.underway, bench.inside.value) == (0, 0, 0)


def test_one_underway_keeps_all_that_it_needs(native: ModuleType) -> None:
    """Python may have let go of the seat and the port, and the answer still comes."""
    bench = Bench(native)
    assert bench.seats[0].take(bench.data)
    bench.rig.lane.flush()
    ((index, frame_id),) = bench.sent
    port = bench.ports[index]
    bench.seats.clear()
    bench.ports.clear()
    bench.rig.lane.choose_from([], [], 0, 1.5)
    port.feed(answer(frame_id))
    assert bench.answers == 1
    assert bench.rig.lane.underway == 0


PARTS = ("lane", "port", "other port", "seat", "other seat", "flush", "recall", "sweep", "drop")


def close(bench: Bench, part: str) -> None:
    rig = bench.rig
    steps: dict[str, Callable[[], Any]] = {
        "lane": rig.lane.close,
        "port": bench.ports[0].close,
        "other port": bench.ports[1].close,
        "seat": bench.seats[0].close,
        "other seat": bench.seats[1].close,
        "flush": rig.lane.flush,
        "recall": rig.lane.recall,
        "sweep": lambda: rig.lane.sweep(1e12),
        "drop": lambda: rig.lane.choose_from([], [], 5, 1.0),
    }
    steps[part]()


@pytest.mark.parametrize("takes_over", [True, False])
def test_parts_may_be_closed_in_any_order(native: ModuleType, takes_over: bool) -> None:
    orders = list(itertools.permutations(PARTS, 4))
    random.Random(4).shuffle(orders)
    for order in orders[:600]:
        bench = Bench(native)
        bench.rig.takes_over = takes_over
        assert all(seat.take(bench.data) for seat in bench.seats[:2])
        for part in order:
            close(bench, part)
            close(bench, part)
            for port in bench.ports:
                port.feed(answer(1 << 62))
            bench.seats[2].take(bench.data)
        for part in ("seat", "other seat", "port", "other port", "lane"):
            close(bench, part)
        bench.seats[2].close()
        bench.rig.lane.flush()
        assert bench.rig.lane.underway == 0
        assert bench.rig.places.underway == 0
        assert bench.inside.value == 0
        handed = len(bench.rig.resumed) if takes_over else 0
        assert sum(ledger.in_flight for ledger in bench.ledgers) == handed
        assert not bench.seats[0].take(bench.data)


def test_a_lane_that_is_closed_lets_go_of_everything(native: ModuleType) -> None:
    bench = Bench(native)
    pods = [weakref.ref(pod) for pod in bench.pods]
    assert bench.seats[0].take(bench.data)
    bench.rig.lane.close()
    for port in bench.ports:
        port.close()
    del port
    bench.pods.clear()
    assert [pod() for pod in pods] == [None, None]
    assert (bench.rig.lane.underway, bench.inside.value, bench.rig.lane.heads) == (0, 0, 0)


def test_callbacks_that_raise_are_told_and_do_no_harm(native: ModuleType) -> None:
    told: list[object] = []

    def broken(*_: object) -> None:
        raise RuntimeError("no")

    rig = Rig(native, resume=broken, alarm=broken)
    rig.learn()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "unraisablehook", told.append)
        client = rig.seat()
        assert client.take(request())
        client.seat.recall()
    assert len(told) == 2
    assert (rig.lane.underway, rig.places.underway, rig.ports[0].ledger.in_flight) == (0, 0, 0)
    rig.lane.flush()
    assert len(rig.ports[0].frames) == 2


def test_wrong_arguments_are_refused(native: ModuleType) -> None:
    rig = Rig(native)
    (port,) = rig.ports
    with pytest.raises(ValueError, match="seed"):
        Rig(native, seed=0)
    with pytest.raises(TypeError):
        rig.lane.choose_from([1], [], 5, 1.0)
    with pytest.raises(TypeError):
        rig.learn(inside=5)
    with pytest.raises(ValueError, match="form"):
        rig.learn(form=9)
    with pytest.raises(TypeError):
        port.port.feed("text")
    with pytest.raises(ValueError, match="UTF-8"):
        native.Port(lane=rig.lane, owner=1, account=port.ledger, write=print, digest=b"\xff", most=9)
    with pytest.raises(TypeError):
        native.Port(lane=rig.lane, owner=1, account=object(), write=print, digest=b"", most=9)
    with pytest.raises(TypeError):
        native.Seat(lane=object(), owner=1, write=print)


def test_python_sees_no_memory_grow(native: ModuleType) -> None:
    bench = Bench(native)
    for how in range(500):
        bench.round(how)
    tracemalloc.start()
    try:
        first = tracemalloc.get_traced_memory()[0]
        for how in range(3_000):
            bench.round(how)
        assert tracemalloc.get_traced_memory()[0] - first < 20_000
    finally:
        tracemalloc.stop()
