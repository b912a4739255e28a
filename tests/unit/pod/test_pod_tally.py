from pathlib import Path

from copydesk.inference.pod.tally import Tally


def test_what_a_worker_counts_is_seen_elsewhere_and_only_in_its_row(tmp_path: Path) -> None:
    supervisor = Tally(tmp_path / "tally", 3)
    worker = Tally(tmp_path / "tally", 3)
    for _ in range(5):
        worker.count_taken(1)
    worker.count_closed(1)
    assert [supervisor.taken(index) for index in range(3)] == [0, 5, 0]
    assert [supervisor.closed(index) for index in range(3)] == [0, 1, 0]


def test_a_dead_workers_counts_begin_anew(tmp_path: Path) -> None:
    supervisor, worker = Tally(tmp_path / "tally", 2), Tally(tmp_path / "tally", 2)
    for each in (0, 1):
        worker.count_taken(each)
        worker.count_closed(each)
    supervisor.reset(0)
    assert [(worker.taken(each), worker.closed(each)) for each in (0, 1)] == [(0, 0), (1, 1)]
