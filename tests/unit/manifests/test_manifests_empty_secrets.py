"""A server whose secret is empty does not start: it would ask nobody for anything."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.fixtures.container_commands import ContainerFiles
from tests.fixtures.manifests import workload


@pytest.mark.parametrize("secret", ["", "\n", "1234\n"])
@pytest.mark.parametrize(("component", "program"), [("redis", "redis-server"), ("nats", "nats-server")])
def test_a_server_starts_with_a_secret_only(component: str, program: str, secret: str, tmp_path: Path) -> None:
    mounted = dict.fromkeys(("password", "token", "tls.crt", "tls.key", "ca.crt"), secret)
    each = workload("local", component)
    files = ContainerFiles(each, tmp_path / "pod", mounted)
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / program).write_text('#!/bin/sh\ntouch "$STARTED"\n')
    (programs / program).chmod(0o755)
    started = tmp_path / "started"
    shell, flag, script = each.main["command"]
    variables = {"PATH": f"{programs}:{os.environ['PATH']}", "STARTED": str(started)}
    ended = subprocess.run([shell, flag, files.moved(script)], env=variables, timeout=60)
    assert started.exists() == (ended.returncode == 0) == bool(secret.strip())
