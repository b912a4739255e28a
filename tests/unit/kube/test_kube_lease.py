"""The rules of the lease, and what they promise of several replicas with their own clocks."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.kube.lease import (
    Move,
    Sighting,
    Term,
    claim,
    leads_until,
    next_move,
    read_lease,
    released,
    see,
    write_lease,
)
from copydesk.kube.objects import Lease, LeaseSpec, Metadata

TERM = Term("a", epoch=1_000_000, duration=6.0, transitions=2, version="7")


def test_the_holder_renews_and_others_wait_until_it_is_over_by_their_own_clock() -> None:
    sighting = Sighting(TERM, since=100.0)
    assert next_move(sighting, "a", 1e9) is Move.RENEW
    assert next_move(sighting, "b", 105.9) is Move.WAIT
    assert next_move(sighting, "b", 106.0) is Move.TAKE


def test_a_holder_whose_epoch_has_been_surpassed_takes_the_lease_anew() -> None:
    sighting = Sighting(TERM, since=100.0)
    assert next_move(sighting, "a", 100.0, last_epoch=TERM.epoch) is Move.RENEW
    assert next_move(sighting, "a", 100.0, last_epoch=TERM.epoch + 1) is Move.TAKE
    assert next_move(sighting, "b", 100.0, last_epoch=TERM.epoch + 1) is Move.WAIT


def test_a_lease_that_is_free_or_missing_is_taken_at_once() -> None:
    assert next_move(Sighting(released(TERM), 100.0), "b", 100.0) is Move.TAKE
    assert next_move(Sighting(None, 100.0), "b", 100.0) is Move.CREATE


def test_a_lease_ages_while_nobody_writes_it() -> None:
    first = see(None, TERM, 100.0)
    assert see(first, TERM, 103.0).since == 100.0
    assert see(first, Term("a", 1_000_000, 6.0, 2, "8"), 103.0).since == 103.0


def test_a_leader_stops_before_others_may_begin() -> None:
    assert leads_until(100.0, TERM) < 106.0


@pytest.mark.parametrize("wall", [0.5, 1000.0, 5000.0])
def test_whoever_takes_over_has_a_larger_epoch_whatever_its_clock_says(wall: float) -> None:
    taken = claim(TERM, "b", 6.0, wall, last_epoch=0)
    assert taken.epoch > TERM.epoch
    assert (taken.holder, taken.transitions, taken.version) == ("b", 3, "7")
    assert claim(None, "b", 6.0, wall, last_epoch=TERM.epoch).epoch > TERM.epoch


def test_what_is_written_is_what_is_read() -> None:
    term = claim(TERM, "b", 6.0, 1_790_000_000.123, last_epoch=0)
    lease = write_lease(term, "copydesk-eds", "prod", 1_790_000_001.5)
    assert read_lease(lease) == term
    assert lease.spec is not None
    assert lease.spec.acquire_time == "2026-09-21T14:13:20.123000Z"
    assert lease.spec.renew_time == "2026-09-21T14:13:21.500000Z"


@pytest.mark.parametrize("wrong", ["9999-12-31T23:59:59.999999Z", "0001-01-01T00:00:00.000000Z"])
def test_an_epoch_that_no_publisher_can_have_had_leaves_room_for_the_next_one(wrong: str) -> None:
    spec = LeaseSpec(holder_identity="x", lease_duration_seconds=6, acquire_time=wrong)
    term = claim(read_lease(Lease(Metadata(name="l"), spec)), "b", 6.0, 1_790_000_000.0, last_epoch=0)
    assert term.epoch == 1_790_000_000_000
    assert read_lease(write_lease(term, "l", "prod", 1_790_000_000.0)).epoch == term.epoch


@pytest.mark.parametrize("spec", [None, LeaseSpec(), LeaseSpec(holder_identity="x", acquire_time="yesterday")])
def test_a_lease_that_says_too_little_is_over(spec: LeaseSpec | None) -> None:
    term = read_lease(Lease(Metadata(name="l", resource_version="3"), spec))
    assert (term.epoch, term.duration) == (0, 0.0)
    assert next_move(Sighting(term, 5.0), "me", 5.0) is Move.TAKE


# A model of replicas that look at one lease at their own times, are paused in between, and have wrong clocks.


@dataclass
class Server:
    term: Term | None = None
    version: int = 0

    def write(self, term: Term) -> Term | None:
        """Store `term` if it replaces what is there; None is a conflict."""
        if (self.term.version if self.term else "") != term.version:
            return None
        self.version += 1
        self.term = Term(term.holder, term.epoch, term.duration, term.transitions, str(self.version))
        return self.term


@dataclass
class Replica:
    name: str
    skew: float
    sighting: Sighting | None = None
    term: Term | None = None
    until: float = 0.0
    last: int = 0

    def look(self, server: Server, now: float) -> None:
        self.sighting = see(self.sighting, server.term, now)
        if server.term is not None:
            self.last = max(self.last, server.term.epoch)
        move = next_move(self.sighting, self.name, now)
        if move is Move.WAIT:
            self.term = None
            return
        term = self.sighting.term
        wanted = term if move is Move.RENEW else claim(term, self.name, 6.0, now + self.skew, self.last)
        assert wanted is not None
        self.term = server.write(wanted)
        self.until = leads_until(now, wanted)

    def leads(self, now: float) -> bool:
        return self.term is not None and now < self.until


@given(
    st.lists(st.tuples(st.integers(0, 2), st.floats(0.0, 4.0)), min_size=1, max_size=60),
    st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3),
)
def test_no_two_lead_at_once_and_epochs_grow_with_every_new_leader(
    looks: list[tuple[int, float]], skews: list[float]
) -> None:
    server = Server()
    replicas = [Replica(name, skew) for name, skew in zip("abc", skews, strict=True)]
    now, leaders = 1000.0, [("", -1)]
    for index, pause in looks:
        now += pause
        replicas[index].look(server, now)
        leading = [replica for replica in replicas if replica.leads(now)]
        assert len(leading) <= 1
        for replica in leading:
            assert replica.term is not None
            if leaders[-1][0] != replica.name:
                assert replica.term.epoch > leaders[-1][1]
                leaders.append((replica.name, replica.term.epoch))
