"""What a new version of a model may do to others while it is rolled out: nothing, whatever it does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from copydesk.common.messages import RolloutPlan, RolloutStage
from copydesk.common.rpc import Status
from copydesk.common.tasks import CorrectedSentence, Outcome
from copydesk.gateway.dispatch import Delivery
from copydesk.gateway.faults import ApiError
from copydesk.gateway.rollout.versions import MOST_WORDS, likeness
from copydesk.gateway.service import Gateway
from tests.fixtures.fake_pod import MODEL
from tests.unit.gateway.conftest import Desk
from tests.unit.gateway.test_rollout import corrected_by, plan, report_of, text_of, two_versions
from tests.unit.gateway.virtual_fleet import PAYLOAD, VirtualFleet, VirtualPod
from tests.unit.loadtest.virtual_time import run_virtually

OLD, NEW = "sha256:virtual", "sha256:new"
Test = Callable[[Gateway, VirtualPod, VirtualPod], Coroutine[Any, Any, None]]


@pytest.fixture
def virtually(monkeypatch: pytest.MonkeyPatch) -> Callable[[Test], None]:
    """Runs a test on the virtual clock, with a pod of each version, of which the new one has all requests."""

    async def run(test: Test) -> None:
        fleet = VirtualFleet(monkeypatch)
        old, new = fleet.pod("old", seconds=0.1), fleet.pod("new", digest=NEW)
        gateway = await fleet.gateway()
        gateway.rollout.hear(
            RolloutPlan(
                model=MODEL,
                rollout="r1",
                epoch=5,
                sequence=1,
                sent_at=0.0,
                stage=RolloutStage.SHARE,
                baseline=OLD,
                candidate=NEW,
                share=1.0,
                expires_after_s=1e6,
            )
        )
        await test(gateway, old, new)

    return lambda test: run_virtually(run(test))


async def asked(gateway: Gateway, seconds: float = 1.0) -> list[Delivery | ApiError]:
    """Have one sentence corrected by the candidate, and wait until all must be over."""
    outcomes: list[Delivery | ApiError] = []
    now = asyncio.get_running_loop().time()
    gateway.rollout.candidate.submit(PAYLOAD, now + seconds, outcomes.append)
    await asyncio.sleep(2 * seconds)
    return outcomes


def counts(gateway: Gateway) -> tuple[int, int, int]:
    """What the candidate answered and failed, and what the baseline answered."""
    report = gateway.rollout.report(0.0)
    assert report is not None
    return report.candidate.requests, report.candidate.failures, report.baseline.requests


@pytest.mark.parametrize("seconds", [0.9, 5.0])
def test_a_candidate_too_slow_for_the_deadline_costs_no_answer(
    virtually: Callable[[Test], None], seconds: float
) -> None:
    async def test(gateway: Gateway, old: VirtualPod, new: VirtualPod) -> None:
        new.seconds = seconds
        found = await asked(gateway)
        assert [type(one) for one in found] == [Delivery]
        assert counts(gateway) == (0, 1, 1)
        assert gateway.rollout.candidate.fallbacks["late"] == 1
        assert gateway.dispatcher.demand.at_pods.count == gateway.dispatcher.gate.underway == 0

    virtually(test)


def test_a_late_answer_that_still_is_the_first_counts_for_the_candidate(
    virtually: Callable[[Test], None],
) -> None:
    async def test(gateway: Gateway, old: VirtualPod, new: VirtualPod) -> None:
        new.seconds = 0.55
        found = await asked(gateway)
        assert [one.digest for one in found if isinstance(one, Delivery)] == [NEW]
        assert counts(gateway) == (1, 0, 0)
        assert len(old.taken) == 1
        assert not old.taken[0].open
        assert gateway.dispatcher.demand.at_pods.count == gateway.dispatcher.gate.underway == 0

    virtually(test)


def test_what_the_baseline_fails_is_left_to_the_candidate_that_has_it_too(
    virtually: Callable[[Test], None],
) -> None:
    async def test(gateway: Gateway, old: VirtualPod, new: VirtualPod) -> None:
        old.fails, new.seconds = Status.INTERNAL, 0.8
        found = await asked(gateway)
        assert [one.digest for one in found if isinstance(one, Delivery)] == [NEW]

    virtually(test)


def test_what_both_fail_ends_once(virtually: Callable[[Test], None]) -> None:
    async def test(gateway: Gateway, old: VirtualPod, new: VirtualPod) -> None:
        old.fails = Status.INTERNAL
        found = await asked(gateway)
        assert [type(one) for one in found] != [Delivery]
        assert len(found) == 1
        assert counts(gateway)[1] == 1

    virtually(test)


async def test_an_answer_that_is_far_too_long_is_none(desk: Desk) -> None:
    gateway, _, new = await two_versions(desk)
    new.answer = lambda text: CorrectedSentence(f"{text} " * 10_000, Outcome.CORRECTED, 1, 1)
    gateway.rollout.hear(plan())
    assert text_of(await corrected_by(gateway, "We go on.")) == "We goes on."
    assert report_of(gateway).candidate.failures == 1


def test_texts_that_repeat_themselves_are_compared_at_once() -> None:
    one, other = " ".join(["a"] * 20_000), " ".join(["a b"] * 10_000)
    assert likeness(one, other) == 0.5  # by the square of their length, or worse, it would take hours


def test_what_long_texts_have_in_common_is_told_by_their_beginnings() -> None:
    words = [str(number) for number in range(2 * MOST_WORDS)]
    assert likeness(" ".join(words), " ".join(words[:MOST_WORDS])) == 1.0
    assert likeness(" ".join(words), " ".join(words[MOST_WORDS:])) == 0.0
