"""Which of the autoscaler's decisions are kept for people."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from copydesk.autoscaler.decision import Rule
from copydesk.common.messages import ScaleDecision
from copydesk.gateway.decisions import NOTABLE, Decisions


def heard(said: Iterable[tuple[int, str]], *, epoch: int = 7) -> Decisions:
    decisions = Decisions()
    for sequence, (replicas, rule) in enumerate(said, 1):
        decision = ScaleDecision(
            model="m",
            sent_at=2.0 * sequence,
            replicas=replicas,
            reason=rule,
            epoch=epoch,
            sequence=sequence,
            rule=rule,
        )
        assert decisions.hear(decision)
    return decisions


def kept(decisions: Decisions) -> list[tuple[int, str]]:
    return [(one.replicas, one.reason) for one in decisions.list()]


def test_the_rules_that_are_notable_are_rules() -> None:
    assert {rule.value for rule in Rule} >= NOTABLE


def test_only_what_changed_the_size_is_kept() -> None:
    said = [(3, "steady")] * 4 + [(5, "up")] + [(5, "hold_recent_peak"), (5, "steady")] * 9 + [(4, "down")]
    assert kept(heard(said)) == [(3, "steady"), (5, "up"), (4, "down")]


def test_trouble_is_kept_once_at_each_size() -> None:
    said = [(3, "steady"), (3, "hold_stale"), (3, "steady"), (3, "hold_stale"), (3, "limit"), (4, "panic")]
    said += [(4, "panic"), (4, "hold_stale")]
    assert kept(heard(said)) == [
        (3, "steady"),
        (3, "hold_stale"),
        (3, "limit"),
        (4, "panic"),
        (4, "hold_stale"),
    ]


@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from([rule.value for rule in Rule])), max_size=60))
def test_the_sizes_that_are_kept_are_those_that_were_decided(said: list[tuple[int, str]]) -> None:
    sizes = [size for size, _ in itertools.groupby(replicas for replicas, _ in said)]
    shown = [size for size, _ in itertools.groupby(replicas for replicas, _ in kept(heard(said)))]
    assert shown == sizes[-len(shown) :]
    assert shown == sizes or len(heard(said).list()) == 50


def test_who_has_been_replaced_is_not_heard() -> None:
    decisions = heard([(3, "steady"), (4, "up")], epoch=9)
    for epoch, sequence in ((8, 50), (9, 2), (9, 1)):
        old = ScaleDecision(model="m", sent_at=9.0, replicas=1, reason="old", epoch=epoch, sequence=sequence)
        assert not decisions.hear(old)
    assert decisions.hear(ScaleDecision(model="m", sent_at=9.0, replicas=5, reason="new", epoch=10, sequence=1))
    assert kept(decisions)[-2:] == [(4, "up"), (5, "new")]
