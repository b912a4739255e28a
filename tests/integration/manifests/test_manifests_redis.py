"""A real Redis, started with the command and the configuration of the Deployment."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import AuthenticationError
from redis.exceptions import ConnectionError as RedisConnectionError

from tests.fixtures.container_commands import ContainerFiles
from tests.fixtures.manifests import workload
from tests.fixtures.nats import free_port
from tests.fixtures.until import until

PASSWORD = "8d2f0c41e7 with $HOME, # and 'quotes'"


@pytest.fixture
def programs() -> Path:
    """The folder of redis-server and redis-cli."""
    found = shutil.which("redis-server")
    if found is None or shutil.which("redis-cli") is None:
        if os.environ.get("COPYDESK_REQUIRE_ALL") == "1":
            pytest.fail("redis-server and redis-cli are not installed")
        pytest.skip("redis-server and redis-cli are not installed")
    return Path(found).parent


def _probe(files: ContainerFiles, port: int) -> int:
    """Run the readiness probe's command; return its exit code."""
    shell, flag, script = workload("local", "redis").main["readinessProbe"]["exec"]["command"]
    command = files.moved(script).replace("redis-cli", f"redis-cli -p {port}")
    return subprocess.run([shell, flag, command], timeout=20, capture_output=True).returncode


@pytest.fixture
def files(tmp_path: Path) -> ContainerFiles:
    """What is mounted into its container."""
    return ContainerFiles(workload("local", "redis"), tmp_path / "pod", {"password": f"{PASSWORD}\n"})


async def test_it_asks_for_the_password_and_keeps_nothing_on_disk(files: ContainerFiles, programs: Path) -> None:
    port = free_port()

    def is_there() -> bool:
        with suppress(RedisConnectionError, AuthenticationError), Redis(port=port, password=PASSWORD) as redis:
            return bool(redis.ping())
        return False

    with files.started(programs, f"--port {port} --bind 127.0.0.1"):
        await until(is_there, timeout=30)
        assert _probe(files, port) == 0
        with Redis(port=port) as stranger, pytest.raises(AuthenticationError):
            stranger.ping()
        with Redis(port=port, password=PASSWORD, decode_responses=True) as redis:
            kept = redis.config_get("save", "appendonly", "maxmemory-policy")
        assert kept == {"save": "", "appendonly": "no", "maxmemory-policy": "volatile-lru"}
        made = files.root / "tmp" / "redis.conf"
        assert made.stat().st_mode & 0o077 == 0  # it holds the password
        (files.root / "etc" / "copydesk" / "secrets" / "redis-password").write_text("another")
        assert _probe(files, port) != 0
