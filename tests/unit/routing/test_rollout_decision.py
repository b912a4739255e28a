"""How far a rollout goes, by what was counted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.routing import (
    Agreement,
    Decision,
    Evidence,
    Policy,
    Service,
    Stage,
    State,
    decide,
    difference,
    wilson,
)

POLICY = Policy(seconds=10.0)
SHADOW = State(Stage.SHADOW, 0.0)
GOOD = Evidence(
    baseline=Service(10_000, slow=100, failures=1),
    candidate=Service(1_000, slow=10),
    agreement=Agreement(600, 560),
    gateways=1,
)

counts = st.integers(min_value=0, max_value=2_000)
services = st.builds(lambda n, slow, failures, refused: Service(n, min(n, slow), failures, refused), *[counts] * 4)
agreements = st.builds(lambda n, same, failed: Agreement(n, min(n, same), failed), *[counts] * 3)
evidences = st.builds(
    Evidence,
    baseline=services,
    candidate=services,
    agreement=agreements,
    gateways=st.integers(0, 2),
    silent=st.sampled_from([(), ("g1",)]),
    unheeded=st.sampled_from([(), ("g2",)]),
    candidates=st.integers(0, 2),
)
states = st.builds(
    State, st.sampled_from([Stage.SHADOW, Stage.SHARE]), st.just(0.0), st.integers(0, 4), st.just(Evidence())
)


def share(step: int = 0) -> State:
    return State(Stage.SHARE, 0.0, step)


def test_enough_agreement_gives_the_first_share() -> None:
    found = decide(SHADOW, GOOD, POLICY, 1.0)
    assert (found.state.stage, found.state.step, found.share(POLICY)) == (Stage.SHARE, 0, 0.01)
    assert "93.3% of 600" in found.why
    assert found.state.mark is GOOD


def test_every_share_in_turn_ends_finished() -> None:
    state, seen, now, evidence = SHADOW, [], 1.0, GOOD
    while not state.stage.over:
        found = decide(state, evidence, POLICY, now)
        assert not found.missing
        state, now = found.state, now + 11.0
        seen.append(found.share(POLICY))
        served = evidence.candidate.requests + 200
        evidence = replace(evidence, candidate=replace(evidence.candidate, requests=served))
    assert state.stage is Stage.FINISHED
    assert seen == [0.01, 0.05, 0.25, 0.5, 1.0, 1.0]
    assert decide(state, Evidence(), POLICY, now).state is state


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        ({"agreement": Agreement(499, 499)}, "1 compared sentences more"),
        ({"agreement": Agreement(600, 520)}, "agreement of 85% for sure"),
        ({"gateways": 0}, "the report of a gateway"),
        ({"silent": ("g7",)}, "the report of gateway g7"),
        ({"unheeded": ("g7",)}, "gateway g7 to follow"),
        ({"candidates": 0}, "a ready pod of the candidate"),
    ],
)
def test_the_shadow_holds_and_says_what_is_missing(change: dict[str, object], missing: str) -> None:
    found = decide(SHADOW, replace(GOOD, **change), POLICY, 1.0)  # type: ignore[arg-type]
    assert found.state is SHADOW
    assert any(missing in what for what in found.missing)
    assert missing in found.why


@pytest.mark.parametrize(
    ("candidate", "now", "missing"),
    [
        (Service(99), 20.0, "1 requests more"),
        (Service(100), 4.0, "6 s more"),
        (Service(100, refused=20), 20.0, "room: 20"),
        (Service(100, failures=3), 20.0, "fewer failures"),
        (Service(100, slow=9), 20.0, "faster answers"),
    ],
)
def test_a_share_holds_and_says_what_is_missing(candidate: Service, now: float, missing: str) -> None:
    found = decide(share(), replace(GOOD, candidate=candidate), POLICY, now)
    assert found.state.stage is Stage.SHARE
    assert found.state.step == 0
    assert any(missing in what for what in found.missing)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"agreement": Agreement(100, 70)}, "only 70.0% of 100"),
        ({"agreement": Agreement(50, 50, failed=30)}, "30 of 80 copies brought no answer"),
        ({"candidate": Service(200, failures=20)}, "failed"),
        ({"candidate": Service(200, slow=60)}, "were too slow"),
    ],
)
@pytest.mark.parametrize("state", [SHADOW, share(), share(4)])
def test_a_regression_goes_back_at_once(change: dict[str, object], why: str, state: State) -> None:
    found = decide(state, replace(GOOD, **change), POLICY, 0.1)  # type: ignore[arg-type]
    assert found.state.stage is Stage.ROLLED_BACK
    assert found.share(POLICY) == 0.0
    assert why in found.why


def test_agreement_that_falls_in_a_share_goes_back_though_it_was_good_before() -> None:
    mark = Evidence(agreement=Agreement(5_000, 4_900))
    now = Agreement(5_100, 4_900 + 60)
    found = decide(State(Stage.SHARE, 0.0, 2, mark), replace(GOOD, agreement=now), POLICY, 1.0)
    assert found.state.stage is Stage.ROLLED_BACK


def test_a_pod_that_dies_once_is_no_regression() -> None:
    found = decide(share(), replace(GOOD, candidate=Service(100, failures=4)), POLICY, 20.0)
    assert found.state.stage is Stage.SHARE


def test_without_patience_it_waits_for_ever_and_with_it_goes_back() -> None:
    nothing = Evidence(gateways=1)
    assert decide(SHADOW, nothing, POLICY, 1e9).state is SHADOW
    found = decide(SHADOW, nothing, replace(POLICY, patience=60.0), 61.0)
    assert found.state.stage is Stage.ROLLED_BACK
    assert "compared sentences more" in found.why


@given(states, evidences, st.floats(0, 1e6))
def test_nothing_advances_without_reports_pods_or_agreement(state: State, evidence: Evidence, now: float) -> None:
    found = decide(state, evidence, POLICY, now)
    assert isinstance(found, Decision)
    advanced = (found.state.stage, found.state.step) > (state.stage, state.step) and (
        found.state.stage is not Stage.ROLLED_BACK
    )
    heard = evidence.gateways and not evidence.silent and not evidence.unheeded and evidence.candidates
    if found.state.stage in (Stage.SHARE, Stage.FINISHED) and found.state is not state:
        assert advanced or found.state.stage is Stage.FINISHED
        assert heard
        if state.stage is Stage.SHADOW:
            assert evidence.agreement.compared >= POLICY.sentences
            low = wilson(evidence.agreement.same, evidence.agreement.compared, POLICY.confidence).low
            assert low >= POLICY.agreement
        else:
            assert evidence.candidate.requests >= POLICY.requests
            assert now - state.since >= POLICY.seconds
            assert found.state.step <= state.step + 1


@given(states, evidences, st.floats(0, 1e6), counts)
def test_more_failures_never_help(state: State, evidence: Evidence, now: float, more: int) -> None:
    candidate = replace(evidence.candidate, failures=evidence.candidate.failures + more)
    worse = decide(state, replace(evidence, candidate=candidate), POLICY, now)
    if decide(state, evidence, POLICY, now).state.stage is Stage.ROLLED_BACK:
        assert worse.state.stage is Stage.ROLLED_BACK


@given(counts, st.integers(1, 2_000), st.floats(0.5, 4.0))
def test_an_interval_holds_the_share_that_was_counted(hits: int, number: int, z: float) -> None:
    hits = min(hits, number)
    found = wilson(hits, number, z)
    assert 0.0 <= found.low <= hits / number + 1e-12
    assert hits / number - 1e-12 <= found.high <= 1.0
    assert wilson(hits, number, z + 0.5).high >= found.high - 1e-12


def test_intervals_are_those_of_the_papers() -> None:
    # Newcombe 1998, part one (81 of 263) and part two (56 of 70 against 48 of 80): score intervals, 95 %
    assert wilson(81, 263, 1.959964) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert difference(56, 70, 48, 80, 1.959964) == pytest.approx((0.0524, 0.3339), abs=5e-5)
