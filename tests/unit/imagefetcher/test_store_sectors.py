"""The cache on disk, without mounts: what is served was hashed, and restarts lose nothing."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from copydesk.imagefetcher.store.ledger import Ledger
from copydesk.imagefetcher.store.recent import RecentSectors
from copydesk.imagefetcher.store.sectors import SectorStore
from tests.fixtures.lazy_image import digest_of

KIB = 1 << 10


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    yield ledger
    ledger.close()


def sectors(count: int, seed: int = 0) -> dict[str, bytes]:
    chance = random.Random(seed)
    contents = [chance.randbytes(4 * KIB) for _ in range(count)]
    return {digest_of(content): content for content in contents}


def path_of(folder: Path, digest: str) -> Path:
    name = digest.removeprefix("sha256:")
    return folder / name[:2] / name


def test_parts_of_a_sector_are_read_as_they_were_put(tmp_path: Path, ledger: Ledger) -> None:
    store = SectorStore(tmp_path / "s", 64 * KIB, ledger)
    for digest, content in sectors(4).items():
        assert store.put(digest, content)
        assert store.read(digest, 100, 200) == content[100:200]
        assert store.read_whole(digest) == content
    assert store.read(digest_of(b"another"), 0, 1) is None


def test_a_restart_finds_everything_and_evicts_in_the_order_of_use(tmp_path: Path, ledger: Ledger) -> None:
    now = [1000.0]
    held = sectors(4)
    store = SectorStore(tmp_path / "s", 16 * KIB, ledger, clock=lambda: now[0])
    for digest, content in held.items():
        now[0] += 1
        store.put(digest, content)
    first, second, *_ = held
    now[0] += 1
    store.read(first, 0, 1)
    store.save()
    again = SectorStore(tmp_path / "s", 16 * KIB, ledger, clock=lambda: now[0])
    assert all(digest in again for digest in held)
    (new,) = sectors(1, seed=9).items()
    again.put(*new)
    assert second not in again
    assert first in again


def test_files_have_the_last_word_over_the_ledger(tmp_path: Path, ledger: Ledger) -> None:
    held = sectors(3)
    store = SectorStore(tmp_path / "s", 64 * KIB, ledger)
    for digest, content in held.items():
        store.put(digest, content)
    store.save()
    gone, *_ = held
    path_of(tmp_path / "s", gone).unlink()
    (unsaved,) = sectors(1, seed=5).items()
    store.put(*unsaved)  # killed before it was saved
    (tmp_path / "s" / "incoming" / "half written").write_bytes(b"x")
    again = SectorStore(tmp_path / "s", 64 * KIB, ledger)
    assert gone not in again
    assert again.read_whole(unsaved[0]) == unsaved[1]
    assert not list((tmp_path / "s" / "incoming").iterdir())
    assert again.total == 3 * 4 * KIB


def test_a_smaller_limit_is_kept_from_the_start(tmp_path: Path, ledger: Ledger) -> None:
    store = SectorStore(tmp_path / "s", 64 * KIB, ledger)
    for digest, content in sectors(8).items():
        store.put(digest, content)
    store.save()
    assert SectorStore(tmp_path / "s", 12 * KIB, ledger).total == 12 * KIB
    assert len(list((tmp_path / "s").glob("??/*"))) == 3


@pytest.mark.parametrize("at_runtime", [True, False])
def test_a_sector_that_does_not_match_its_name_is_removed_and_counted_once(
    tmp_path: Path, ledger: Ledger, at_runtime: bool
) -> None:
    (digest, content), *_ = sectors(1).items()
    store = SectorStore(tmp_path / "s", 64 * KIB, ledger)
    store.put(digest, content)
    path_of(tmp_path / "s", digest).write_bytes(b"?" + content[1:])
    if not at_runtime:
        store = SectorStore(tmp_path / "s", 64 * KIB, ledger)
    assert store.read(digest, 100, 200) is None
    assert store.read(digest, 100, 200) is None
    assert store.counts.corrupt == 1
    assert digest not in store
    store.put(digest, content)
    assert store.read(digest, 100, 200) == content[100:200]


def test_a_sector_larger_than_the_limit_evicts_nothing(tmp_path: Path, ledger: Ledger) -> None:
    store = SectorStore(tmp_path / "s", 8 * KIB, ledger)
    for digest, content in sectors(2).items():
        store.put(digest, content)
    assert not store.put(digest_of(bytes(9 * KIB)), bytes(9 * KIB))
    assert len(store) == 2


def test_readers_see_right_bytes_or_none_while_others_evict(tmp_path: Path, ledger: Ledger) -> None:
    held = sectors(32)
    store = SectorStore(tmp_path / "s", 16 * KIB, ledger)
    wrong = threading.Event()

    def work(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(200):
            digest, content = chance.choice(list(held.items()))
            read = store.read(digest, 7, 77)
            if read is None:
                store.put(digest, content)
            elif read != content[7:77]:
                wrong.set()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert not wrong.is_set()
    assert store.total <= 16 * KIB
    assert store.counts.corrupt == 0


def test_a_sector_put_just_after_a_reader_found_no_file_stays_known(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SectorStore(tmp_path / "s", 64 * KIB, ledger)
    ((digest, content),) = sectors(1).items()
    really = os.open

    def open_before_it_is_put(path: os.PathLike[str] | str, flags: int, *rest: int) -> int:
        try:
            return really(path, flags, *rest)
        except FileNotFoundError:
            monkeypatch.undo()
            assert store.put(digest, content)
            raise

    monkeypatch.setattr(os, "open", open_before_it_is_put)
    assert store.read(digest, 0, 1) is None
    assert digest in store
    assert store.total == len(content)


def test_a_file_removed_by_hand_is_forgotten_by_who_misses_it(tmp_path: Path, ledger: Ledger) -> None:
    store = SectorStore(tmp_path / "s", 64 * KIB, ledger)
    ((digest, content),) = sectors(1).items()
    store.put(digest, content)
    path_of(tmp_path / "s", digest).unlink()
    assert store.read(digest, 0, 1) is None
    assert digest not in store
    assert store.total == 0


def test_clearing_removes_the_files(tmp_path: Path, ledger: Ledger) -> None:
    store = SectorStore(tmp_path / "s", 64 * KIB, ledger)
    for digest, content in sectors(3).items():
        store.put(digest, content)
    assert store.clear() == 12 * KIB
    assert not list((tmp_path / "s").glob("??/*"))
    assert ledger.sectors() == []


def test_memory_keeps_the_sectors_used_last() -> None:
    recent = RecentSectors(8 * KIB)
    (first, second, third) = sectors(3).items()
    recent.put(*first)
    recent.put(*second)
    assert recent.get(first[0]) == first[1]
    recent.put(*third)
    assert recent.get(second[0]) is None
    assert recent.get(first[0]) == first[1]


def test_memory_keeps_a_sector_larger_than_itself_but_no_other_beside_it() -> None:
    recent = RecentSectors(8 * KIB)
    (first, second) = sectors(2).items()
    recent.put(*first)
    recent.put(digest_of(bytes(9 * KIB)), bytes(9 * KIB))
    assert recent.get(digest_of(bytes(9 * KIB))) == bytes(9 * KIB)
    assert recent.get(first[0]) is None
    recent.put(*second)
    assert recent.get(digest_of(bytes(9 * KIB))) is None
    assert recent.get(second[0]) == second[1]


def test_an_image_keeps_its_number_and_a_new_one_never_gets_an_old_number(ledger: Ledger) -> None:
    first = ledger.add_image("a", "ref:1", 1.0)
    assert ledger.add_image("a", "ref:2", 2.0).number == first.number
    assert ledger.images()[0].reference == "ref:2"
    ledger.remove_image("a")
    assert ledger.add_image("b", "ref:1", 3.0).number > first.number
