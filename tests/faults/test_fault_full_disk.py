"""The disk that a fleet keeps its state and logs on is full."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.conftest import failures, load, until_whole
from tests.fixtures.fleet import running_fleet

pytestmark = pytest.mark.faults

SIZE = "4m"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with little room."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(disk)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        reason = f"a small file system takes root: {mounted.stderr.strip()}"
        if os.environ.get("COPYDESK_REQUIRE_ALL") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def fill(disk: Path) -> None:
    """Write until not a byte more goes in."""
    for size in (65536, 1):
        try:
            with (disk / f"filler-{size}").open("wb", buffering=0) as file:
                while True:
                    file.write(b"x" * size)
        except OSError:
            continue


async def test_a_fleet_serves_heals_and_ends_while_its_disk_is_full(small_disk: Path, quick_model: Path) -> None:
    with running_fleet(small_disk / "fleet", "--model", str(quick_model)) as fleet:
        fill(small_disk)
        before = len(fleet.events)
        loading = asyncio.create_task(load(fleet.url, 8.0))
        await asyncio.sleep(1.0)
        os.kill(fleet.pid("pod-2"), signal.SIGKILL)
        assert failures(await loading) == []
        await asyncio.to_thread(fleet.wait_for, "restarted", name="pod-2", timeout=60, after=before)
        await until_whole(fleet)
        assert failures(await load(fleet.url, 2.0)) == []
        assert fleet.stop() == 0
