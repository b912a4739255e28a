"""Which decisions of an autoscaler a local fleet follows."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.cli.fleet.orders import MAX_AGE_S, Change, Orders, Refusal
from copydesk.cli.fleet.scaling import Limits
from copydesk.common.messages import ScaleDecision

NOW = 1_000_000.0


def orders(size: int = 2) -> Orders:
    return Orders("gec-en", Limits(1, 4), size)


def decision(replicas: int = 3, epoch: int = 7, sequence: int = 1, **more: Any) -> ScaleDecision:
    values = {"model": "gec-en", "sent_at": NOW, "reason": "demand grew", "rule": "up", **more}
    return ScaleDecision(replicas=replicas, epoch=epoch, sequence=sequence, **values)


def test_a_decision_is_taken_with_its_reason() -> None:
    fleet = orders()
    change = fleet.hear(decision(), NOW)
    assert isinstance(change, Change)
    assert (change.before, change.target.replicas, change.target.reason) == (2, 3, "demand grew")
    assert fleet.taken == 1


def test_a_decision_for_the_same_size_keeps_the_reason_for_which_it_is_that_size() -> None:
    fleet = orders()
    fleet.hear(decision(), NOW)
    fleet.hear(decision(sequence=2, reason="steady", rule="steady"), NOW + 2)
    assert (fleet.target.replicas, fleet.target.reason, fleet.target.sequence) == (3, "demand grew", 2)


@pytest.mark.parametrize(
    ("heard", "refusal"),
    [
        (decision(model="other"), Refusal.MODEL),
        (decision(policy="careful"), Refusal.POLICY),
        (decision(0), Refusal.SIZE),
        (decision(-3), Refusal.SIZE),
        (decision(epoch=2**53), Refusal.NUMBERS),
        (decision(sequence=-1), Refusal.NUMBERS),
        (decision(sent_at=NOW - MAX_AGE_S - 0.1), Refusal.AGE),
        (decision(sent_at=NOW + MAX_AGE_S + 0.1), Refusal.AGE),
        (decision(sent_at=float("nan")), Refusal.AGE),
        (decision(epoch=4), Refusal.EPOCH),
        (decision(epoch=4, sequence=99), Refusal.EPOCH),
        (decision(epoch=5, sequence=10), Refusal.SEQUENCE),
        (decision(epoch=5, sequence=3), Refusal.SEQUENCE),
    ],
)
def test_what_is_for_others_nonsense_late_or_of_a_former_leader_changes_nothing(
    heard: ScaleDecision, refusal: Refusal
) -> None:
    fleet = orders()
    fleet.hear(decision(2, epoch=5, sequence=10), NOW)
    before = fleet.target
    assert fleet.hear(heard, NOW) is refusal
    assert fleet.target == before
    assert fleet.taken == 1


def test_a_new_leader_begins_its_own_count() -> None:
    fleet = orders()
    fleet.hear(decision(2, epoch=5, sequence=10), NOW)
    assert isinstance(fleet.hear(decision(3, epoch=6, sequence=1), NOW), Change)


def test_without_an_epoch_and_a_sequence_it_is_nobodys_decision() -> None:
    assert orders().hear(decision(epoch=0, sequence=0), NOW) is Refusal.SEQUENCE


@given(st.integers(-10, 10**9), st.integers(1, 10**15), st.integers(0, 10**9))
def test_the_size_stays_within_the_limits_whatever_is_said(replicas: int, epoch: int, sequence: int) -> None:
    fleet = orders()
    fleet.hear(decision(replicas, epoch, sequence), NOW)
    assert 1 <= fleet.target.replicas <= 4


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 4)), max_size=12))
def test_the_size_is_that_of_the_newest_decision_in_whatever_order_they_come(
    heard: list[tuple[int, int, int]],
) -> None:
    first = {(epoch, sequence): size for epoch, sequence, size in reversed(heard)}
    fleet = orders()
    for epoch, sequence, size in heard:
        fleet.hear(decision(size, epoch, sequence), NOW)
    newest = max(first, default=None)
    assert fleet.target.replicas == (2 if newest is None else first[newest])


def test_it_takes_what_the_wire_carries() -> None:
    wire = msgspec.json.decode(msgspec.json.encode(decision()), type=ScaleDecision)
    assert isinstance(orders().hear(wire, NOW), Change)
