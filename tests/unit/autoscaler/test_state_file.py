"""What is learned over days outlives a restart; a file that cannot be used costs nothing but what was in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from copydesk.autoscaler import Capacity, Rules, State
from copydesk.autoscaler.forecast import DAY, Season, observe
from copydesk.autoscaler.memory import Memory
from copydesk.autoscaler.pilot import Pilot
from copydesk.autoscaler.plan import CapacitySource, Configuration, Plan
from copydesk.autoscaler.refinement import LEAST, Refinement
from copydesk.autoscaler.state_file import StateFile, StateFileError

POD = Capacity.assumed(20.0, 1000.0, 100.0)
RULES = Rules()
NOW = 1_764_500_000.0


def learned() -> State:
    season = Season()
    for minute in range(2 * DAY + 100):
        season = observe(season, 5.0 + minute % 7, 60.0 * minute, 2)
    return State(
        service_s=0.25, season=season, ramps=(0.001, 0.02), ramp=0.01, refinement=Refinement(0.81, bad_since=5.0)
    )


@pytest.fixture
def file(tmp_path: Path) -> StateFile:
    return StateFile(tmp_path / "state", "gec-en")


def test_what_was_learned_is_there_after_a_restart(file: StateFile) -> None:
    state = learned()
    file.save(state, POD, NOW)
    found = file.load(RULES, POD, NOW + 60.0)
    assert found is not None
    assert (found.season, found.ramps, found.service_s) == (state.season, state.ramps, state.service_s)
    assert found.refinement == Refinement(0.81)  # evidence of before the restart is none of now
    assert (found.leader_since, found.demand, found.sizes) == (None, (), ())


@pytest.mark.parametrize("later", [-10.0, 100_000.0])
def test_a_factor_of_long_ago_or_of_the_future_is_not_believed(file: StateFile, later: float) -> None:
    file.save(learned(), POD, NOW)
    found = file.load(RULES, POD, NOW + later)
    assert found is not None
    assert found.refinement.factor == 1.0


def test_without_a_file_nothing_is_known(file: StateFile) -> None:
    assert file.load(RULES, POD, NOW) is None


def spoiled(**changes: Any) -> dict[str, Any]:
    saved: dict[str, Any] = {
        "version": 1,
        "model": "gec-en",
        "saved_at": NOW,
        "concurrency": 20.0,
        "rate": 100.0,
        "factor": 1.0,
        "service_s": 0.2,
        "ramps": [],
        "season": msgspec.to_builtins(Season()),
    }
    return {**saved, **changes}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00" * 100,
        b"[" * 100_000,
        msgspec.json.encode(spoiled(version=2)),
        msgspec.json.encode(spoiled(model="other")),
        msgspec.json.encode(spoiled(rate=99.0)),
        msgspec.json.encode(spoiled(factor=9.0)),
        msgspec.json.encode(spoiled(factor=None)),
        msgspec.json.encode(spoiled(service_s=-1.0)),
        msgspec.json.encode(spoiled(ramps=[-1.0])),
        msgspec.json.encode(spoiled(ramps=[0.1] * 5000)),
        msgspec.json.encode(spoiled(season={"past": [[1.0, 2.0]]})),
        msgspec.json.encode(spoiled(season={"today": [1.0], "minute": 0})),
        msgspec.json.encode(spoiled(season={"today": [-5.0], "minute": 1})),
        msgspec.json.encode(spoiled(season={"minute": 2**60})),
        msgspec.json.encode(spoiled(season={"errors": [[-1.0, 0.0, 3]]})),
        msgspec.json.encode(spoiled(season={"total": 0.0, "count": 10**400})),
        msgspec.json.encode(spoiled(season={"wrong": [0.0, 0.0, 10**400]})),
        msgspec.json.encode(spoiled(ramps=[1e300])),
        msgspec.json.encode(spoiled())[:-30],
    ],
)
async def test_a_file_that_cannot_be_used_is_put_aside_and_scaling_begins_anew(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "gec-en.state.json"
    path.write_bytes(content)
    with pytest.raises(StateFileError, match="gec-en"):
        StateFile(tmp_path, "gec-en").load(RULES, POD, NOW)
    pilot = Pilot(Plan("gec-en", Configuration(source=CapacitySource(concurrency=20.0, rate=100.0))))
    await Memory(tmp_path).recall(pilot, NOW)
    assert pilot.state == State()
    assert not path.exists()
    assert path.with_name("gec-en.state.json.unusable").read_bytes() == content


def test_a_file_that_is_as_it_should_be_is_not_refused(tmp_path: Path) -> None:
    (tmp_path / "gec-en.state.json").write_bytes(msgspec.json.encode(spoiled()))
    assert StateFile(tmp_path, "gec-en").load(RULES, POD, NOW) is not None


async def test_a_model_goes_on_from_what_the_run_before_has_kept(tmp_path: Path) -> None:
    configuration = Configuration(source=CapacitySource(concurrency=20.0, rate=100.0))
    first = Pilot(Plan("gec-en", configuration))
    memory = Memory(tmp_path)
    await memory.recall(first, NOW)
    first.state = learned()
    await memory.keep([first], NOW)
    second = Pilot(Plan("gec-en", configuration, replace(configuration, name="other")))
    await Memory(tmp_path).recall(second, NOW + 5.0)
    assert second.state.season == learned().season
    assert second.state.refinement.factor == pytest.approx(0.81)


async def test_a_folder_that_cannot_be_written_to_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    pilot = Pilot(Plan("gec-en", Configuration(source=CapacitySource(concurrency=20.0))))
    memory = Memory(tmp_path / "file")
    await memory.recall(pilot, NOW)
    await memory.keep([pilot], NOW)
    assert pilot.state == State()


def test_what_was_found_of_an_assumption_outlives_a_restart_and_counts_for_a_certificate_as_far_as_that_goes(
    file: StateFile,
) -> None:
    file.save(replace(learned(), refinement=Refinement(0.2)), POD, NOW)
    found = file.load(RULES, POD, NOW + 60.0)
    assert found is not None
    assert found.refinement == Refinement(0.2)
    measured = file.load(RULES, replace(POD, measured=True), NOW + 60.0)
    assert measured is not None
    assert measured.refinement == Refinement(LEAST)
