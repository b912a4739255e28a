"""The decision log: written without ever standing in the way, read whatever has become of it."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog

from copydesk.autoscaler import log_writer
from copydesk.autoscaler.log_entry import Entry, Virtual, heard, message_of
from copydesk.autoscaler.log_file import LogTail, last_entries, log_files, read_entries
from copydesk.autoscaler.log_writer import LogWriter
from copydesk.autoscaler.observer import Outcome

MIB = 1 << 20


def entry(sequence: int, **changes: Any) -> Entry:
    fields: dict[str, Any] = {
        "time": 1000.0 + 2.0 * sequence,
        "model": "gec-en",
        "epoch": 7,
        "policy": "live",
        "size": 3,
        "replicas": 3,
        "rule": "steady",
        "reason": "stay at 3: it is enough",
        "inputs": {"size": 3, "demand": 2.5, "stale_gateways": []},
    }
    return Entry(sequence=sequence, **{**fields, **changes})


def written(path: Path, *entries: Entry, limit: int = MIB, files: int = 3) -> LogWriter:
    writer = LogWriter(path, limit, files)
    for one in entries:
        writer.write(one)
    writer.close()
    return writer


def sequences(path: Path) -> list[int]:
    return [one.sequence for one in read_entries(path, Entry)]


def test_lines_are_appended_and_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "log.jsonl"
    one = entry(1, observed=Outcome(seconds=2.0, p99_ms=301.5, shed=4), virtual=Virtual(ready=2, work=3.5))
    written(path, one)
    written(path, entry(2))
    assert list(read_entries(path, Entry)) == [one, entry(2)]


def test_a_log_that_is_full_is_moved_aside_and_few_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    line = len(msgspec.json.encode(entry(100))) + 1
    for sequence in range(100, 110):
        written(path, entry(sequence), limit=2 * line + 10, files=3)
    assert [sequences(file) for file in log_files(path)] == [[104, 105], [106, 107], [108, 109]]
    assert [one.sequence for one in last_entries(path, 3, lambda _: True)] == [107, 108, 109]
    assert [one.sequence for one in last_entries(path, 9, lambda one: one.sequence % 2 == 0)] == [104, 106, 108]
    written(path, entry(110), limit=line, files=1)
    assert sequences(path) == [110]


def test_a_line_that_was_cut_short_spoils_neither_the_next_nor_the_reader(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    written(path, entry(1), entry(2))
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 20)
    assert sequences(path) == [1]
    written(path, entry(3))
    with path.open("ab") as file:
        file.write(b"\xff\xfe nonsense\n\n{}\n[1]\n" + b"[" * 100_000 + b"\n")
    assert sequences(path) == [1, 3]


def test_a_disk_that_takes_nothing_loses_lines_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.jsonl"

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patched, structlog.testing.capture_logs() as logs:
        patched.setattr(os, "write", full)
        assert written(path, entry(1), entry(2)).dropped == 2
    assert {log["event"] for log in logs} == {"decision_log_unwritable"}
    assert written(path, entry(3)).dropped == 0
    assert sequences(path) == [3]


def test_a_path_that_cannot_be_one_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert written(tmp_path / "file" / "log.jsonl", entry(1)).dropped == 1


def test_a_disk_that_hangs_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, free = tmp_path / "log.jsonl", threading.Event()
    write = os.write

    def hang(descriptor: int, data: bytes) -> int:
        if threading.current_thread().name == "decision-log":
            assert free.wait(30)
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", hang)
    monkeypatch.setattr(log_writer, "CLOSE_SECONDS", 0.01)
    writer = LogWriter(path, MIB, 1)
    try:
        for sequence in range(log_writer.MOST_WAITING * 5):
            writer.write(entry(sequence))
        assert writer.dropped >= log_writer.MOST_WAITING
        writer.close()
    finally:
        free.set()
        monkeypatch.setattr(log_writer, "CLOSE_SECONDS", 30.0)
        writer.close()
    assert not writer._thread.is_alive()


def test_a_tail_shows_what_is_appended_across_a_move(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    written(path, entry(1))
    tail = LogTail(path)
    assert tail.new() == []
    line = msgspec.json.encode(entry(2)) + b"\n"
    with path.open("ab") as file:
        file.write(line[:30])
        file.flush()
        assert tail.new() == []
        file.write(line[30:])
    assert [one.sequence for one in tail.new()] == [2]
    path.replace(tmp_path / "log.jsonl.1")
    assert tail.new() == []
    written(path, entry(3))
    assert [one.sequence for one in tail.new()] == [3]


def test_a_tail_loses_nothing_that_was_written_just_before_a_move(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    written(path, entry(1))
    tail = LogTail(path)
    written(path, entry(2))
    path.replace(tmp_path / "log.jsonl.1")
    written(path, entry(3))
    assert [one.sequence for one in tail.new()] == [2, 3]
    written(path, entry(4))
    assert [one.sequence for one in tail.new()] == [4]


def test_a_tail_begins_anew_where_a_log_was_deleted_or_emptied(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    written(path, entry(1), entry(2))
    tail = LogTail(path)
    path.write_bytes(b"")
    written(path, entry(3))
    assert [one.sequence for one in tail.new()] == [3]
    path.unlink()
    assert tail.new() == []
    path.mkdir()
    assert tail.new() == []
    path.rmdir()
    written(path, entry(4))
    assert [one.sequence for one in tail.new()] == [4]


def test_what_is_published_says_as_much_as_the_log() -> None:
    one = entry(1, observed=Outcome(seconds=2.0, shed=4), virtual=Virtual(ready=2, work=3.5), slo_ms=1000.0)
    assert heard(message_of(one, one.time)) == one
    assert message_of(one, 5.0, "image").image == ""
    assert message_of(entry(2, replicas=4), 5.0, "image").image == "image"
    assert message_of(entry(2, inputs={"pending": 1}), 5.0, "image").image == "image"


def test_a_message_with_other_inputs_is_understood_as_far_as_it_goes() -> None:
    message = msgspec.structs.replace(
        message_of(entry(1), entry(1).time),
        inputs={"size": "many", "observed": [1], "virtual": {"ready": -1.5}, "slo_ms": "x"},
    )
    assert heard(message) == entry(1, inputs={"size": "many"})


def test_a_log_that_another_one_moves_aside_at_the_same_moment_loses_no_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.jsonl"
    line = len(msgspec.json.encode(entry(1))) + 1
    written(path, entry(1), entry(2), limit=MIB)
    replace = Path.replace

    def twice(self: Path, target: Path) -> Path:
        replace(self, target)
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", twice)
    assert written(path, entry(3), limit=line, files=3).dropped == 0
    assert sequences(path) == [3]
    assert sequences(tmp_path / "log.jsonl.1") == [1, 2]
