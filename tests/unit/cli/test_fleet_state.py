"""The state file and the lock of a fleet."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec
import pytest

from copydesk.cli.fleet import state
from copydesk.cli.fleet.state import FleetRunningError, FleetState, ProcessState, StateDirError, StateLock


def a_fleet(directory: Path, *, pid: int | None = None, url: str = "http://127.0.0.1:8080") -> FleetState:
    return FleetState(
        pid=os.getpid() if pid is None else pid,
        started=time.time(),
        url=url,
        nats_url="nats://127.0.0.1:24222",
        model="gec-en",
        model_dir="/models/gec-en",
        state_dir=str(directory),
        logs=str(directory / "logs"),
        pods=("pod-1",),
        processes=(ProcessState(name="nats", role="nats", pid=None, started=None, restarts=0),),
    )


def test_what_was_written_is_read(tmp_path: Path) -> None:
    fleet = a_fleet(tmp_path)
    state.write_state(fleet)
    assert state.read_state(tmp_path) == fleet
    assert [path.name for path in tmp_path.iterdir()] == ["fleet.json"]


def test_a_fleet_whose_supervisor_is_gone_is_no_fleet(tmp_path: Path) -> None:
    state.write_state(a_fleet(tmp_path, pid=2**22 + 1))
    assert state.read_state(tmp_path) is None


def test_a_process_that_is_younger_than_the_fleet_only_has_its_number(tmp_path: Path) -> None:
    state.write_state(msgspec.structs.replace(a_fleet(tmp_path), started=1.0))
    assert state.read_state(tmp_path) is None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"pid": "x"}'])
def test_a_damaged_state_file_is_no_fleet(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "fleet.json").write_bytes(content)
    assert state.read_state(tmp_path) is None


def test_a_second_fleet_on_a_directory_is_told_of_the_first(tmp_path: Path) -> None:
    with StateLock(tmp_path / "new"):
        state.write_state(a_fleet(tmp_path / "new"))
        with pytest.raises(FleetRunningError, match=rf"pid {os.getpid()}, http://127\.0\.0\.1:8080"):
            StateLock(tmp_path / "new").__enter__()


def test_a_directory_that_cannot_be_made_is_named_with_the_reason(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for directory in (file, file / "below"):
        with pytest.raises(StateDirError, match=rf"{directory} cannot hold .*: (File exists|Not a directory)"):
            StateLock(directory).__enter__()


def test_the_directory_is_free_and_its_state_forgotten_after_the_end(tmp_path: Path) -> None:
    with StateLock(tmp_path):
        state.write_state(a_fleet(tmp_path))
    assert state.read_state(tmp_path) is None
    with StateLock(tmp_path):
        pass


def test_fleets_are_found_in_the_users_state_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    directory = state.default_state_dir(8081)
    directory.mkdir(parents=True)
    fleet = a_fleet(directory, url="http://127.0.0.1:8081")
    state.write_state(fleet)
    assert state.running_fleets() == (fleet,)


def test_nobody_else_may_read_the_state_file(tmp_path: Path) -> None:
    state.write_state(a_fleet(tmp_path))
    assert (tmp_path / "fleet.json").stat().st_mode & 0o777 == 0o600
