"""Limits in the file of keys, and the file as it changes."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from copydesk.gateway.access import Gatekeeper, KeyFile, KeyWatch
from copydesk.gateway.faults import ApiError
from copydesk.gateway.keys import KeyLimits, KeyRing, KeysFileError
from copydesk.gateway.rates import ClosedMeter


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def write(file: Path, content: str | None) -> None:
    """Write the file anew; None removes it."""
    if content is None:
        file.unlink()
    else:
        file.write_text(content)


def replace(file: Path, content: str) -> None:
    """Put another file in its place, with its date."""
    before = file.stat()
    other = file.with_suffix(".new")
    other.write_text(content)
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.rename(file)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys"


def test_limits_stand_behind_the_hash(file: Path) -> None:
    file.write_text(
        f"web:{digest('k1')} requests_per_second=2.5 burst=10\tconcurrency=4\n"
        f"batch:{digest('k2')}\n"
        f"old:{digest('k3')}  disabled\n"
    )
    ring = KeyRing.load(file)
    assert ring.limits["web"] == KeyLimits(requests_per_second=2.5, burst=10, concurrency=4)
    assert ring.limits["batch"] == KeyLimits()
    assert [ring.name_of(key) for key in ("k1", "k2", "k3")] == ["web", "batch", None]


@pytest.mark.parametrize(
    "words",
    [
        "requests_per_second=0", "requests_per_second=-1", "requests_per_second=nan", "requests_per_second=inf",
        "requests_per_second=fast", "requests_per_second", "burst=0", "burst=1.5", "concurrency=0", "speed=3",
        "disabled=perhaps", "burst=", "=3",
    ],
)  # fmt: skip
def test_words_that_are_no_limits_are_an_error_that_names_the_line(file: Path, words: str) -> None:
    file.write_text(f"# keys\nweb:{digest('k1')} {words}\n")
    with pytest.raises(KeysFileError, match="line 2"):
        KeyRing.load(file)


def test_keys_of_one_name_share_the_lowest_of_their_limits(file: Path) -> None:
    file.write_text(
        f"web:{digest('k1')} requests_per_second=5 concurrency=3\n"
        f"web:{digest('k2')} requests_per_second=2\n"
        f"web:{digest('k3')} requests_per_second=1 disabled\n"
    )
    ring = KeyRing.load(file)
    assert (ring.name_of("k1"), ring.name_of("k2")) == ("web", "web")
    assert ring.limits["web"] == KeyLimits(requests_per_second=2, concurrency=3)


def test_two_rings_joined_let_in_the_keys_of_both() -> None:
    one = KeyRing((("web", hashlib.sha256(b"k1").digest()),), {"web": KeyLimits(burst=3)})
    two = KeyRing((("web", hashlib.sha256(b"k2").digest()), ("b", hashlib.sha256(b"k3").digest())))
    joined = one.joined(two)
    assert [joined.name_of(key) for key in ("k1", "k2", "k3", "k4")] == ["web", "web", "b", None]
    assert joined.limits["web"] == KeyLimits(burst=3)


async def test_a_changed_file_is_in_force_at_the_next_look(file: Path) -> None:
    write(file, f"web:{digest('k1')}\n")
    gatekeeper = Gatekeeper(ClosedMeter())
    watch = KeyWatch(gatekeeper, KeyFile(file), None, interval=1)
    await watch.look()
    assert gatekeeper.check("Bearer k1") == "web"
    assert not gatekeeper.limited("web")
    write(file, f"web:{digest('k2')} concurrency=1\n")
    await watch.look()
    assert gatekeeper.check("Bearer k2") == "web"
    assert gatekeeper.limited("web")
    with pytest.raises(ApiError, match="invalid_api_key"):
        gatekeeper.check("Bearer k1")


async def test_a_file_that_is_replaced_is_noticed_even_with_an_old_date_and_the_same_size(file: Path) -> None:
    write(file, f"web:{digest('k1')}\n")
    gatekeeper = Gatekeeper(ClosedMeter())
    watch = KeyWatch(gatekeeper, KeyFile(file), None, interval=1)
    await watch.look()
    replace(file, f"web:{digest('k2')}\n")
    await watch.look()
    assert gatekeeper.check("Bearer k2") == "web"


@pytest.mark.parametrize("damage", ["nonsense\n", "", None])
async def test_a_file_that_was_spoilt_or_removed_leaves_the_last_keys_in_force(
    file: Path, damage: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    write(file, f"web:{digest('k1')}\n")
    gatekeeper = Gatekeeper(ClosedMeter())
    watch = KeyWatch(gatekeeper, KeyFile(file), None, interval=1)
    await watch.look()
    write(file, damage)
    for _ in range(3):
        await watch.look()
    assert gatekeeper.check("Bearer k1") == "web"
    assert capsys.readouterr().out.count("keys_file_unusable") == 1
    write(file, f"web:{digest('k2')}\n")
    await watch.look()
    assert gatekeeper.check("Bearer k2") == "web"


async def test_before_the_file_was_read_nobody_is_let_in(file: Path) -> None:
    gatekeeper = Gatekeeper(ClosedMeter())
    KeyWatch(gatekeeper, KeyFile(file), None, interval=1)
    with pytest.raises(ApiError, match="invalid_api_key"):
        gatekeeper.check("Bearer k1")
