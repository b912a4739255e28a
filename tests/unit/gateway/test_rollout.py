"""A gateway between two versions of its model."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from copydesk.common.messages import EndpointState, LoadReport, RolloutPlan, RolloutReport, RolloutStage
from copydesk.common.tasks import CorrectedSentence, Outcome
from copydesk.gateway.correction import Correction
from copydesk.gateway.faults import ApiError
from copydesk.gateway.keys import KeyRing
from copydesk.gateway.rollout.following import Following
from copydesk.gateway.rollout.versions import Comparison, likeness
from copydesk.gateway.service import Gateway
from copydesk.gateway.settings import GatewaySettings
from copydesk.routing import Draw, Split
from tests.fixtures.fake_pod import DIGEST, MODEL, FakePod, corrected
from tests.unit.gateway.conftest import Desk, eventually, snapshot
from tests.unit.gateway.lane_rig import Rig, request
from tests.unit.gateway.serving import served

NEW = "sha256:new"
RING = KeyRing((("web", hashlib.sha256(b"k1").digest()),))
_sequences = itertools.count(1)


def plan(stage: RolloutStage = RolloutStage.SHARE, **how: Any) -> RolloutPlan:
    fields: dict[str, Any] = {
        "model": MODEL,
        "rollout": "r1",
        "epoch": 5,
        "sequence": next(_sequences),
        "sent_at": 0.0,
        "stage": stage,
        "baseline": DIGEST,
        "candidate": NEW,
        "share": 1.0,
    }
    return RolloutPlan(**fields | how)


def shouted(text: str) -> CorrectedSentence:
    return CorrectedSentence(corrected(text).text.upper(), Outcome.CORRECTED, 1, 1)


async def two_versions(desk: Desk, **settings: object) -> tuple[Gateway, FakePod, FakePod]:
    old, new = await desk.pod("old"), FakePod("new", answer=shouted)
    new.digest = NEW
    await new.start()
    desk._stack.push_async_callback(new.stop)
    return await desk.gateway(old, new, **settings), old, new


async def corrected_by(
    gateway: Gateway, text: str, request_id: str = "r", **headers: str
) -> Correction | ApiError:
    found: asyncio.Future[Correction | ApiError] = asyncio.get_running_loop().create_future()
    named = {name.encode(): value.encode() for name, value in headers.items()}
    corrector = gateway.rollout.corrector(named, request_id)
    corrector.submit([text], asyncio.get_running_loop().time() + 5.0, found.set_result)
    async with asyncio.timeout(10):
        return await found


def text_of(outcome: Correction | ApiError) -> str:
    assert isinstance(outcome, Correction), outcome
    return outcome.texts[0].corrected


def report_of(gateway: Gateway) -> RolloutReport:
    report = gateway.rollout.report(0.0)
    assert report is not None
    return msgspec.json.decode(msgspec.json.encode(report), type=RolloutReport)


async def test_without_a_plan_all_ready_pods_answer_and_nothing_is_told(desk: Desk) -> None:
    gateway, old, new = await two_versions(desk)
    for number in range(40):
        await corrected_by(gateway, f"She go {number}.")
    assert old.received
    assert new.received
    assert gateway.rollout.report(0.0) is None
    assert "rollout" not in gateway.render_metrics()


async def test_a_candidate_in_the_shadow_answers_nobody_and_is_compared_afterwards(desk: Desk) -> None:
    gateway, old, new = await two_versions(desk)
    gateway.rollout.hear(plan(RolloutStage.SHADOW, shadow_share=1.0))
    for number in range(5):
        assert text_of(await corrected_by(gateway, f"She go {number}.")) == f"She goes {number}."
    compared = gateway.rollout.copies.comparison
    await eventually(lambda: compared.compared == 5)
    assert compared.both_changed == 5
    assert sorted(new.received) == sorted(old.received)
    report = report_of(gateway)
    assert (report.compared.compared, report.candidate.requests, report.baseline.requests) == (5, 0, 5)
    assert report.baseline.pods == report.candidate.pods == 1
    demand = gateway.dispatcher.demand
    assert (demand.completed, demand.failed, demand.shed, demand.at_pods.count) == (5, 0, 0, 0)


async def test_what_differs_is_kept_where_that_was_asked_for_and_no_more_than_so_many(
    desk: Desk, tmp_path: Path
) -> None:
    path = tmp_path / "examples.jsonl"
    gateway, _, _ = await two_versions(desk, rollout_examples_file=path, rollout_examples_limit=2)
    for rollout in ("r1", "r2"):
        gateway.rollout.hear(plan(RolloutStage.SHADOW, shadow_share=1.0, rollout=rollout))
        for number in range(4):
            await corrected_by(gateway, f"She go {rollout} {number}.")
        await eventually(lambda: gateway.rollout.copies.comparison.compared == 4)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["rollout"] for line in lines] == ["r1", "r1", "r2", "r2"]
    for line in lines:
        assert line["baseline"] == line["text"].replace("go ", "goes ")
        assert line["candidate"] == line["baseline"].upper()
    assert path.stat().st_mode & 0o777 == 0o600


async def test_a_file_of_examples_that_is_lost_costs_no_answer(desk: Desk, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    gateway, _, _ = await two_versions(desk, rollout_examples_file=folder / "examples.jsonl")
    folder.rmdir()
    gateway.rollout.hear(plan(RolloutStage.SHADOW, shadow_share=1.0))
    for number in range(3):
        assert text_of(await corrected_by(gateway, f"She go {number}.")) == f"She goes {number}."
    await eventually(lambda: gateway.rollout.copies.comparison.compared == 3)


def test_a_file_of_examples_in_no_folder_is_found_out_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="rollout_examples_file"):
        GatewaySettings(rollout_examples_file=tmp_path / "nowhere" / "examples.jsonl")


async def test_a_copy_sets_out_after_the_live_answer(desk: Desk) -> None:
    gateway, old, new = await two_versions(desk)
    old.behaviour = "slow"
    gateway.rollout.hear(plan(RolloutStage.SHADOW, shadow_share=1.0))
    waiting = asyncio.create_task(corrected_by(gateway, "One go. Two go."))
    await eventually(lambda: len(old.received) == 2)
    assert new.received == []
    await waiting
    assert new.received == []
    await eventually(lambda: len(new.received) == 2)


@pytest.mark.parametrize("behaviour", ["fail", "invalid", "garbage", "unavailable"])
async def test_copies_that_fail_are_no_errors_of_the_service(desk: Desk, behaviour: str) -> None:
    gateway, _, new = await two_versions(desk)
    new.behaviour = behaviour
    gateway.rollout.hear(plan(RolloutStage.SHADOW, shadow_share=1.0))
    assert text_of(await corrected_by(gateway, "She go.")) == "She go."
    compared = gateway.rollout.copies.comparison
    await eventually(lambda: compared.failed == 1)
    assert gateway.dispatcher.demand.failed == 0
    assert gateway.rollout.copies.underway == 0
    assert gateway.rollout.copies.at_pods.count == 0


async def test_copies_are_dropped_while_the_candidate_is_busy(desk: Desk) -> None:
    gateway, _, new = await two_versions(desk)
    new.behaviour, new.capacity = "hang", 2
    gateway.fleet.pods["new"].ledger.restart(2)
    gateway.rollout.hear(plan(RolloutStage.SHADOW, shadow_share=1.0))
    for number in range(6):
        await corrected_by(gateway, f"She go {number}.")
    compared = gateway.rollout.copies.comparison
    await eventually(lambda: compared.dropped == 4)
    assert gateway.rollout.copies.underway == 2


async def test_all_sentences_of_a_request_are_drawn_together_by_its_session(desk: Desk) -> None:
    gateway, _, _ = await two_versions(desk)
    gateway.rollout.hear(plan(share=0.5))
    split = Split.of("r1", 0.5, 0.0)
    seen: Counter[Draw] = Counter()
    for number in range(24):
        session = f"person-{number}"
        expected = split.draw(session.encode())
        seen[expected] += 1
        for request_id in ("a", "b"):
            outcome = await corrected_by(
                gateway, f"One go {number}. Two go {number}.", request_id, **{"x-request-session": session}
            )
            candidate = expected is Draw.CANDIDATE
            assert text_of(outcome).isupper() is candidate
            assert isinstance(outcome, Correction)
            assert outcome.digest == (NEW if candidate else DIGEST)
    assert set(seen) == {Draw.BASELINE, Draw.CANDIDATE}
    report = report_of(gateway)
    assert report.candidate.requests == 4 * seen[Draw.CANDIDATE]
    assert report.baseline.requests == 4 * seen[Draw.BASELINE]
    assert sum(report.candidate.counts) == report.candidate.requests
    assert gateway.dispatcher.demand.completed == 96


@pytest.mark.parametrize(
    ("behaviour", "failures", "refused"),
    [
        ("fail", 1, 0),
        ("crash", 1, 0),
        ("unavailable", 1, 0),
        ("engineless", 1, 0),
        ("overload", 0, 1),
        ("invalid", 1, 0),
        ("garbage", 1, 0),
    ],
)
async def test_what_the_candidate_cannot_answer_the_baseline_does(
    desk: Desk, behaviour: str, failures: int, refused: int
) -> None:
    gateway, _, new = await two_versions(desk)
    new.behaviour = behaviour
    gateway.rollout.hear(plan())
    assert text_of(await corrected_by(gateway, "We go on.")) == "We goes on."
    report = report_of(gateway)
    assert (report.candidate.failures, report.candidate.refused) == (failures, refused)
    assert (report.baseline.requests, report.baseline.failures) == (1, 0)
    demand = gateway.dispatcher.demand
    assert (demand.completed, demand.failed, demand.shed) == (1, 0, 0)
    assert demand.at_pods.count == gateway.dispatcher.gate.underway == 0


async def test_a_candidate_that_hangs_or_dies_costs_no_answer(desk: Desk) -> None:
    gateway, _, new = await two_versions(desk)
    gateway.rollout.hear(plan())
    new.behaviour = "hang"
    waiting = asyncio.create_task(corrected_by(gateway, "We go on."))
    await eventually(lambda: new.received)
    await new.stop()
    assert text_of(await waiting) == "We goes on."
    assert text_of(await corrected_by(gateway, "They go.")) == "They go."
    assert gateway.rollout.candidate.fallbacks["no_pod"] == 1
    assert report_of(gateway).candidate.failures == 1


async def test_a_second_pod_of_the_candidate_is_asked_before_the_baseline(desk: Desk) -> None:
    old, bad, good = await desk.pod("old"), FakePod("bad", "fail", answer=shouted), FakePod("good", answer=shouted)
    for pod in (bad, good):
        pod.digest = NEW
        await pod.start()
        desk._stack.push_async_callback(pod.stop)
    gateway = await desk.gateway(old, bad, good)
    gateway.rollout.hear(plan())
    for number in range(10):
        assert text_of(await corrected_by(gateway, f"We go {number}.")).isupper()
    assert old.received == []
    assert bad.received


async def test_what_finds_no_room_goes_to_the_baseline(desk: Desk) -> None:
    gateway, old, new = await two_versions(desk)
    new.behaviour, new.seconds, new.capacity = "slow", 0.3, 1
    gateway.fleet.pods["new"].ledger.restart(1)
    gateway.rollout.hear(plan())
    outcomes = await asyncio.gather(*(corrected_by(gateway, f"We go {number}.") for number in range(6)))
    assert all(isinstance(outcome, Correction) for outcome in outcomes)
    assert len(old.received) == 6 - len(new.received)
    assert report_of(gateway).candidate.refused == len(old.received) > 0


async def test_a_request_that_is_cancelled_leaves_nothing_behind(desk: Desk) -> None:
    gateway, _, new = await two_versions(desk)
    new.behaviour = "hang"
    gateway.rollout.hear(plan())
    outcomes: list[object] = []
    run = gateway.rollout.corrector({}, "r").submit(
        ["We go."], asyncio.get_running_loop().time() + 5, outcomes.append
    )
    await eventually(lambda: new.received)
    run.cancel()
    await eventually(lambda: new.cancelled)
    assert outcomes == []
    assert gateway.dispatcher.demand.at_pods.count == 0
    assert all(pod.ledger.in_flight == 0 for pod in gateway.fleet.pods.values())


async def test_remembered_sentences_never_cross_versions(desk: Desk) -> None:
    gateway, old, new = await two_versions(desk, cache="memory")
    assert gateway.rollout.split is None
    gateway.rollout.hear(plan(RolloutStage.PAUSED))
    assert text_of(await corrected_by(gateway, "We go on.")) == "We goes on."
    gateway.rollout.hear(plan())
    for _ in range(2):
        assert text_of(await corrected_by(gateway, "We go on.")) == "WE GOES ON."
    gateway.rollout.hear(plan(RolloutStage.ROLLED_BACK))
    assert text_of(await corrected_by(gateway, "We go on.")) == "We goes on."
    gateway.rollout.hear(plan(RolloutStage.FINISHED))
    assert text_of(await corrected_by(gateway, "We go on.")) == "WE GOES ON."
    assert len(old.received) == len(new.received) == 1


async def test_the_end_holds_one_way_or_the_other(desk: Desk) -> None:
    gateway, _, _ = await two_versions(desk)
    gateway.rollout.hear(plan(RolloutStage.FINISHED))
    assert gateway.fleet.digest == NEW
    assert all([text_of(await corrected_by(gateway, f"We go {n}.")).isupper() for n in range(8)])
    gateway.rollout.hear(plan(RolloutStage.ROLLED_BACK, epoch=6))
    assert gateway.fleet.digest == DIGEST
    assert not any([text_of(await corrected_by(gateway, f"We go {n}.")).isupper() for n in range(8)])


async def test_with_nobody_else_left_the_withheld_version_answers(desk: Desk) -> None:
    gateway, old, _ = await two_versions(desk)
    gateway.rollout.hear(plan(RolloutStage.SHADOW))
    await old.stop()
    await eventually(lambda: len(gateway.fleet.eligible) == 1)
    assert text_of(await corrected_by(gateway, "We go.")) == "WE GO."


async def test_a_candidate_outside_the_aperture_is_connected_to(desk: Desk) -> None:
    pods = [await desk.pod(f"old-{number}") for number in range(3)]
    new = FakePod("new", answer=shouted)
    new.digest = NEW
    desk._stack.push_async_callback((await new.start()).stop)
    gateway = await desk.gateway(aperture=2, identity="gateway-0")
    gateway.fleet.apply(snapshot(*(pod.endpoint() for pod in (*pods, new))))
    await eventually(lambda: len(gateway.fleet.eligible) == 2)
    assert "new" not in {pod.id for pod in gateway.fleet.eligible}
    gateway.rollout.hear(plan())
    gateway.fleet.hear_report(load_of(new))
    await eventually(lambda: gateway.fleet.spare)
    assert text_of(await corrected_by(gateway, "We go.")) == "WE GO."


def load_of(pod: FakePod) -> LoadReport:
    return LoadReport(
        model=MODEL,
        pod=pod.name,
        sequence=1,
        sent_at=0.0,
        started_at=1.0,
        host="127.0.0.1",
        port=pod.port,
        state=EndpointState.READY,
        running=0,
        queued=0,
        capacity=16,
        step_ms=1.0,
        digest=pod.digest,
    )


async def test_a_plan_that_is_not_renewed_expires(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    gateway, _, _ = await two_versions(desk)
    gateway.rollout.hear(plan(expires_after_s=0.05))
    assert text_of(await corrected_by(gateway, "We go.")).isupper()
    await asyncio.sleep(0.06)
    gateway.rollout.look()
    assert text_of(await corrected_by(gateway, "We go on.")) == "We goes on."
    assert not report_of(gateway).in_force
    metrics = gateway.render_metrics()
    assert "rollout_unattended_total 1" in metrics
    assert 'in_force="false"' in metrics
    gateway.rollout.hear(plan())
    assert text_of(await corrected_by(gateway, "We go on.")).isupper()


def test_late_and_foreign_plans_are_not_followed() -> None:
    following = Following(MODEL)
    assert following.hear(plan(sequence=5), 0.0)
    assert not following.hear(plan(sequence=4), 0.1)
    assert not following.hear(plan(sequence=5), 0.1)
    assert not following.hear(plan(model="other", sequence=9), 0.1)
    assert not following.hear(plan(candidate=DIGEST, sequence=9), 0.1)
    assert not following.hear(plan(epoch=4, sequence=99), 5.0)
    assert following.hear(plan(epoch=6, sequence=1), 5.1)
    assert following.hear(plan(epoch=4, sequence=100), 30.0)


@given(st.sampled_from(RolloutStage), st.floats(0, 60), st.floats(-1, 2), st.floats(-1, 2))
def test_the_candidate_answers_only_in_force(
    stage: RolloutStage, silent: float, share: float, copied: float
) -> None:
    following = Following(MODEL)
    following.hear(plan(stage, share=share, shadow_share=copied), 0.0)
    course = following.course(silent)
    assert course is not None
    assert course.withheld == (DIGEST if stage is RolloutStage.FINISHED else NEW)
    watched = stage in (RolloutStage.SHADOW, RolloutStage.SHARE)
    assert course.in_force is (not watched or silent <= 15.0)
    if course.split is not None:
        assert watched
        assert course.in_force
        assert 0.0 <= course.split.share <= 1.0
        assert stage is RolloutStage.SHARE or course.split.share == 0.0


@pytest.mark.parametrize(
    ("source", "old", "new", "outcome"),
    [
        ("a b", "a c", "a c", "same"),
        ("a b", "a b", "a c", "only_candidate"),
        ("a b", "a c", "a b", "only_baseline"),
        ("a b", "a c", "a d", "both_changed"),
    ],
)
def test_answers_are_compared_as_texts(source: str, old: str, new: str, outcome: str) -> None:
    comparison = Comparison()
    comparison.compare(source, old, new)
    assert comparison.outcomes()[outcome] == comparison.compared == 1
    assert comparison.likeness == pytest.approx(1.0 if outcome == "same" else 0.5)


@given(st.text(), st.text())
def test_likeness_is_a_share(one: str, other: str) -> None:
    assert 0.0 <= likeness(one, other) <= 1.0
    assert likeness(one, one) == 1.0


@given(st.binary(min_size=1, max_size=30), st.floats(0, 1), st.floats(0, 1))
def test_the_lane_draws_as_python_does(native: ModuleType, session: bytes, share: float, copied: float) -> None:
    rig = Rig(native)
    assert rig.learn(session=session)
    split = Split.of("r1", share, copied)
    rig.lane.divide(split.seed, split.share, split.copied)
    taken = rig.seat().take(request())
    drawn = split.draw(session)
    assert taken is (drawn is Draw.BASELINE)
    if share or copied:
        assert rig.lane.take_drawn() == drawn
    assert rig.lane.take_drawn() == 0


@pytest.mark.parametrize("named", [True, False])
async def test_the_lane_stays_in_use_for_the_baselines_share(
    desk: Desk, native: ModuleType, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    monkeypatch.setattr("tests.unit.gateway.conftest.Gateway", lambda settings: Gateway(settings, native))
    gateway, old, new = await two_versions(desk)
    gateway.rollout.hear(plan(share=0.3))
    assert isinstance(gateway.settings, GatewaySettings)
    async with served(gateway, RING, hot=True) as client:
        for number in range(100):
            headers = {"x-request-id": f"id-{number}"} if named else {}
            answer = await client.post("/v1/correct", json={"text": f"We go {number} on."}, headers=headers)
            assert answer.status_code == 200
            by = DIGEST if answer.json()["corrected"] == f"We goes {number} on." else NEW
            assert answer.json()["model_digest"] == by
            if named:
                drawn = Split.of("r1", 0.3, 0.0).draw(f"id-{number}".encode())
                assert (by == NEW) is (drawn is Draw.CANDIDATE)
    assert 10 <= len(new.received) <= 55
    assert len(old.received) + len(new.received) == 100
    assert gateway.lane is not None
    gateway.lane.settle()
    carried = {labels[0][1]: n for labels, n in next(iter(gateway.lane.families()))[3]}
    assert carried["answered"] > 30
    report = report_of(gateway)
    assert report.baseline.requests == len(old.received)
    assert report.candidate.requests == len(new.received)
