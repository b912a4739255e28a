"""`copydesk image status` beside a running daemon."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.fixtures.blob_server import BlobUpstream
from tests.fixtures.image_daemon import running_daemon, settings_in


def status(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "copydesk.cli", "image", "status", "--run-dir", str(folder / "run"), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_the_share_that_is_cached_is_shown(node_folder: Path, upstream: BlobUpstream, reference: str) -> None:
    with running_daemon(settings_in(node_folder), upstream) as client:
        client.mount(reference, node_folder / "mnt")
        (node_folder / "mnt" / "large.bin").read_bytes()
        said = status(node_folder)
        assert said.returncode == 0, said.stderr
        assert reference in said.stdout
        assert str(node_folder / "mnt") in said.stdout.replace("\n", "")
        assert "no holder" in said.stdout
        image = json.loads(status(node_folder, "--json").stdout)["images"][0]
        assert 8 << 20 <= image["held_size"] <= client.status().images[0].held_size  # more is fetched ahead


def test_without_a_daemon_it_says_how_to_start_one(tmp_path: Path) -> None:
    said = status(tmp_path)
    assert said.returncode == 1
    assert "python -m copydesk.imagefetcher" in said.stderr


def test_the_daemons_own_setting_says_where_it_is(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "copydesk.cli", "image", "status"]
    environment = os.environ | {"COPYDESK_IMAGEFETCHER_RUN_DIR": str(tmp_path / "run")}
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert str(tmp_path / "run") in said.stderr
