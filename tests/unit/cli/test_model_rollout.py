"""The control of a rollout: who is heard, what is added up, what is shown."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from copydesk.cli.commands.up import CannotStartError, UpRequest, check_candidate
from copydesk.cli.fleet.plan import Candidate
from copydesk.cli.main import app
from copydesk.cli.rollout.conductor import Beginning, Conductor, Terms
from copydesk.cli.rollout.gathered import Gathered, slower
from copydesk.cli.rollout.roster import Roster, VersionError, Versions, digest_of, find_versions
from copydesk.cli.rollout.status import agreement_line, picture, status_of
from copydesk.common.latency import BUCKETS, percentile_ms
from copydesk.common.messages import (
    LATENCY_BOUNDS_MS,
    ComparedTotals,
    EndpointState,
    LoadReport,
    RolloutReport,
    RolloutStage,
    VersionTotals,
)
from copydesk.routing import Policy, Stage
from tests.fixtures.tiny_model import write_tiny_model

OLD, NEW = "a" * 64, "b" * 64
TERMS = Terms(Policy(sentences=10, shares=(0.1, 1.0), seconds=5, requests=10), 200.0, 0.1, 15.0)


def report(gateway: str = "g1", *, started_at: float = 50.0, sequence: int = 1, **how: Any) -> RolloutReport:
    old, new, same = how.pop("old", 0), how.pop("new", 0), how.pop("same", 0)
    fields: dict[str, Any] = {
        "model": "m",
        "gateway": gateway,
        "sequence": sequence,
        "sent_at": 0.0,
        "started_at": started_at,
        "rollout": "r",
        "epoch": 7,
        "stage": RolloutStage.SHADOW,
        "share": 0.0,
        "in_force": True,
        "baseline": totals(OLD, old),
        "candidate": totals(NEW, new),
        "compared": ComparedTotals(compared=same, same=same, likeness=float(same)),
    }
    return RolloutReport(**fields | how)


def totals(digest: str, requests: int) -> VersionTotals:
    return VersionTotals(digest=digest, requests=requests, counts=(0,) * 5 + (requests,) + (0,) * (BUCKETS - 6))


def load(pod: str, digest: str, *, state: EndpointState = EndpointState.READY, model: str = "m") -> LoadReport:
    numbers: dict[str, Any] = {"running": 0, "queued": 0, "capacity": 4, "sequence": 1, "port": 1}
    return LoadReport(
        model=model, pod=pod, digest=digest, state=state, sent_at=0, started_at=0, host="h", step_ms=1.0, **numbers
    )


def roster(*reports: LoadReport) -> Roster:
    made = Roster()
    for one in reports:
        made.hear(one, 0.0)
    return made


def requests(gathered: Gathered) -> tuple[int, int]:
    old, new = gathered.sides()
    return old.requests, new.requests


def test_what_was_before_the_rollout_does_not_count() -> None:
    gathered = Gathered("r", 7, began=100.0)
    gathered.hear(report(old=1_000), 0.0)
    assert requests(gathered) == (0, 0)
    gathered.hear(report(sequence=2, old=1_010, new=5), 1.0)
    gathered.hear(report(sequence=1, old=1_005, new=2), 1.5)
    assert requests(gathered) == (10, 5)


def test_a_gateway_that_restarts_or_comes_later_counts_from_its_begin() -> None:
    gathered = Gathered("r", 7, began=100.0)
    gathered.hear(report(old=1_000), 0.0)
    gathered.hear(report(sequence=2, old=1_010, new=5, same=3), 1.0)
    gathered.hear(report(started_at=120.0, old=7, new=2, same=4), 2.0)
    gathered.hear(report("g2", started_at=130.0, old=100), 2.0)
    assert requests(gathered) == (117, 7)
    assert gathered.compared().same == 7
    gathered.hear(report(sequence=3, old=5_000), 3.0)  # of the run before, very late
    assert requests(gathered) == (117, 7)


def test_whoever_falls_silent_is_waited_for_and_then_forgotten_but_what_it_counted_stays() -> None:
    gathered = Gathered("r", 7, began=0.0)
    for now in (0.0, 10.0, 70.0):
        gathered.hear(report("g2", sequence=int(now) + 1, old=5), now)
        if now == 0.0:
            gathered.hear(report("g1", old=3), now)
        found = gathered.evidence(200.0, baselines=1, candidates=1, now=now)
        assert found.silent == (("g1",) if now == 10.0 else ())
        assert requests(gathered) == (8, 0)
    assert gathered.evidence(200.0, baselines=1, candidates=1, now=500.0).silent == ("g2",)


@pytest.mark.parametrize("how", [{"epoch": 6}, {"in_force": False}, {"rollout": "another"}])
def test_gateways_that_follow_something_else_are_named(how: dict[str, Any]) -> None:
    gathered = Gathered("r", 7, began=0.0)
    gathered.hear(report("g1", **how), 0.0)
    assert gathered.evidence(200.0, baselines=1, candidates=1, now=0.0).unheeded == ("g1",)
    assert not gathered.follow("shadow")
    gathered.hear(report("g1", sequence=2), 1.0)
    assert gathered.evidence(200.0, baselines=1, candidates=1, now=1.0).unheeded == ()
    assert gathered.follow("shadow")


def test_counts_by_other_bounds_are_refused() -> None:
    odd = VersionTotals(digest=OLD, counts=(1, 2, 3))
    with pytest.raises(ValueError, match="3 buckets"):
        Gathered("r", 7, began=0.0).hear(report(baseline=odd), 0.0)


buckets = st.lists(st.integers(0, 1_000), min_size=BUCKETS, max_size=BUCKETS)


@given(buckets, st.floats(0.1, 30_000))
def test_what_is_slower_is_between_the_buckets_around(counts: list[int], slo: float) -> None:
    least = sum(count for low, count in zip(LATENCY_BOUNDS_MS, counts[1:], strict=True) if low >= slo)
    most = sum(count for high, count in zip((*LATENCY_BOUNDS_MS, 1e9), counts, strict=True) if high >= slo)
    assert least <= slower(counts, slo) <= most


@given(buckets)
def test_percentiles_rise_and_lie_within_the_bounds(counts: list[int]) -> None:
    found = [percentile_ms(counts, share) for share in (0.01, 0.5, 0.99, 1.0)]
    if not sum(counts):
        assert found == [None] * 4
        return
    values = [value for value in found if value is not None]
    assert len(values) == 4
    assert values == sorted(values)
    assert 0.0 <= values[0] <= values[3] <= LATENCY_BOUNDS_MS[-1]


def test_two_versions_are_found_by_what_ready_pods_report() -> None:
    heard = roster(load("p1", OLD), load("p2", NEW), load("p3", "c" * 64, state=EndpointState.WARMING))
    assert find_versions(heard, 1.0, model=None, candidate="bbbb", baseline=None) == Versions("m", OLD, NEW)
    assert find_versions(heard, 1.0, model="m", candidate=OLD, baseline=NEW) == Versions("m", NEW, OLD)


@pytest.mark.parametrize(
    ("pods", "how", "said"),
    [
        ((), {}, "no pod is heard"),
        ((load("p", OLD), load("q", NEW, model="n")), {}, "several models: m, n"),
        ((load("p", OLD),), {}, "is run by no ready pod; there are: aaaaaaaaaaaa \\(1 pods\\)"),
        ((load("p", NEW),), {}, "one version; there are: none"),
        ((load("p", OLD), load("q", NEW), load("r", "c" * 64)), {}, "there are: aaaaaaaaaaaa, cccccccccccc"),
        ((load("p", OLD), load("q", NEW)), {"baseline": NEW}, "the same version"),
        ((load("p", OLD), load("q", NEW)), {"model": "other"}, "no ready pod of other"),
    ],
)
def test_what_keeps_a_rollout_from_beginning_is_said(
    pods: tuple[Any, ...], how: dict[str, Any], said: str
) -> None:
    wanted: dict[str, Any] = {"model": None, "candidate": NEW, "baseline": None}
    with pytest.raises(VersionError, match=said):
        find_versions(roster(*pods), 1.0, **wanted | how)


def test_pods_that_are_silent_are_not_there() -> None:
    assert roster(load("p", OLD)).ready("m", 10.0) == {}


def test_a_version_is_named_by_digest_or_directory(tmp_path: Path) -> None:
    digest = digest_of(str(write_tiny_model(tmp_path / "model")))
    assert len(digest) == 64
    assert digest_of(digest[:10]) == digest[:10]
    (tmp_path / "empty").mkdir()
    for wrong in (str(tmp_path / "empty"), "no/such/thing", "abc"):
        with pytest.raises(VersionError):
            digest_of(wrong)


def test_a_rollout_is_conducted_and_shown() -> None:
    conductor = Conductor(Versions("m", OLD, NEW), TERMS, Beginning("r", 7), now=0.0, wall=0.0)
    first = conductor.plan(1.0)
    assert (first.stage, first.share, first.shadow_share, first.epoch, first.sequence) == (
        "shadow",
        0.0,
        0.1,
        7,
        1,
    )
    assert agreement_line(status_of(conductor, "tick", 1.0)).endswith("no request has come since it began")
    conductor.gathered.hear(report(started_at=1.0, old=100, same=100), 1.0)
    assert conductor.tick(baselines=1, candidates=1, now=1.0)
    assert conductor.plan(2.0).share == 0.1
    shown = io.StringIO()
    Console(file=shown, width=120).print(picture(status_of(conductor, "stage", 2.0), 200.0))
    for part in (
        "10% to the candidate",
        "aaaaaaaaaaaa",
        "bbbbbbbbbbbb",
        "100 sentences compared: 100.0% the same",
    ):
        assert part in shown.getvalue()
    conductor.roll_back("SIGINT came", 3.0)
    last = conductor.plan(3.0)
    assert (last.stage, last.share, last.shadow_share, last.sequence) == ("rolled_back", 0.0, 0.0, 3)


@pytest.mark.parametrize(
    ("stage", "share", "expected"),
    [
        (RolloutStage.SHADOW, 0.0, (Stage.SHADOW, 0)),
        (RolloutStage.SHARE, 0.1, (Stage.SHARE, 0)),
        (RolloutStage.SHARE, 0.3, (Stage.SHARE, 1)),
        (RolloutStage.SHARE, 1.0, (Stage.SHARE, 1)),
    ],
)
def test_a_rollout_is_taken_over_where_it_was(
    stage: RolloutStage, share: float, expected: tuple[Stage, int]
) -> None:
    begin = Beginning.resumed(report(stage=stage, share=share, epoch=99), (0.1, 1.0), 5)
    assert (begin.stage, begin.step) == expected
    assert begin.epoch == 100


@pytest.mark.parametrize(
    "arguments",
    [("--stages", "5,1"), ("--stages", "x"), ("--stages", "0,10"), ("--stages", "50,101"), ("--shadow", "0"), ()],
)
def test_bad_input_ends_with_two(arguments: tuple[str, ...]) -> None:
    named = ("--candidate", "b" * 12) if arguments else ()
    result = CliRunner().invoke(app, ["model", "rollout", *named, *arguments])
    assert result.exit_code == 2


def up_request(**how: Any) -> UpRequest:
    fields: dict[str, Any] = {"pods": 1, "model": None, "port": 1, "dtype": "auto", "state_dir": None}
    return UpRequest(**fields | {"as_json": True, "show": False} | how)


def test_a_fleet_takes_another_version_and_not_the_same_again(tmp_path: Path) -> None:
    one = write_tiny_model(tmp_path / "one", seed=1)
    other = write_tiny_model(tmp_path / "other", seed=2)
    assert check_candidate(up_request(candidate=other, candidate_pods=3), one) == Candidate(other, 3)
    with pytest.raises(CannotStartError, match="holds the model that the other pods run"):
        check_candidate(up_request(candidate=write_tiny_model(tmp_path / "again", seed=1)), one)
    with pytest.raises(CannotStartError):
        check_candidate(up_request(candidate=tmp_path), one)
    with pytest.raises(CannotStartError):
        check_candidate(up_request(candidate=tmp_path / "nothing"), one)


def test_a_candidate_is_for_a_fleet_that_keeps_its_size(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["up", "--candidate", str(tmp_path), "--autoscale", "1:2"])
    assert result.exit_code == 2


def test_without_nats_it_says_so() -> None:
    result = CliRunner().invoke(
        app, ["model", "rollout", "--candidate", "b" * 12, "--nats-url", "nats://127.0.0.1:1", "--json"]
    )
    assert result.exit_code == 2
    assert "not reachable" in result.stderr
