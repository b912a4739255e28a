"""A Docker engine for a test: the one that answers here, else one of its own, which leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

START_SECONDS = 60.0
END_SECONDS = 60.0

KEPT_VARIABLE = "COPYDESK_TEST_DOCKER_ROOT"
"""Names a folder that outlives the run, for who builds the same images again and again."""


UNTOUCHED = {"filter": ":INPUT ACCEPT\n:FORWARD ACCEPT\n:OUTPUT ACCEPT\n", "nat": ""}
"""What iptables-save leaves out where nothing was ever set."""


def lacking(reason: str) -> None:
    """Skip, or fail where nothing may be skipped."""
    if os.environ.get("COPYDESK_REQUIRE_ALL") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def succeeds(*command: str, env: Mapping[str, str]) -> bool:
    """Say whether a command exits with 0."""
    try:
        return subprocess.run(command, env=env, capture_output=True, timeout=30, check=False).returncode == 0
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return False


@contextmanager
def docker_engine() -> Iterator[dict[str, str]]:
    """Give the environment in which `docker` and its plug-ins reach an engine."""
    env = dict(os.environ)
    for plugin in ("compose", "buildx"):
        if not succeeds("docker", plugin, "version", env=env):
            lacking(f"there is no `docker {plugin}`; tests/compose/install-plugins.sh FOLDER gets it from Debian")
    if succeeds("docker", "info", env=env):
        yield env
        return
    if shutil.which("dockerd") is None or os.geteuid() != 0:
        lacking(
            "no Docker engine answers, and none can be started: that takes root, and apt-get install docker.io"
        )
    kept = os.environ.get(KEPT_VARIABLE, "")
    folder = Path(kept or tempfile.mkdtemp(prefix="copydesk-docker-", dir="/var/tmp"))
    try:
        with network_left_as_it_was(), own_engine(folder) as host:
            yield env | {"DOCKER_HOST": host}
    finally:
        if not kept:
            shutil.rmtree(folder)


@contextmanager
def network_left_as_it_was() -> Iterator[None]:
    """Undo what dockerd leaves when it ends: rules that drop what this machine forwards, and a bridge."""
    rules = subprocess.run(["iptables-save"], check=False, capture_output=True).stdout.decode()
    rules += "".join(
        f"*{table}\n{chains}COMMIT\n" for table, chains in UNTOUCHED.items() if f"*{table}" not in rules
    )
    had_bridge = Path("/sys/class/net/docker0").exists()
    try:
        yield
    finally:
        subprocess.run(["iptables-restore"], input=rules.encode(), check=False, capture_output=True)
        if not had_bridge:
            subprocess.run(["ip", "link", "del", "docker0"], check=False, capture_output=True)


@contextmanager
def own_engine(folder: Path) -> Iterator[str]:
    """Run dockerd with all that it writes in `folder`; give its address."""
    folder.mkdir(parents=True, exist_ok=True)
    pid_file = folder / "pid"
    pid_file.unlink(missing_ok=True)
    host = f"unix://{folder}/sock"
    paths = ("--data-root", folder / "data", "--exec-root", folder / "exec", "--pidfile", pid_file)
    command = ["dockerd", *map(str, paths), "--host", host, "--group", "root"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not succeeds("docker", "--host", host, "info", env=os.environ):
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"dockerd did not start:\n{(folder / 'log').read_text()[-4000:]}")
            time.sleep(0.2)
        yield host
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
