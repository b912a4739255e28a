"""How the sub-commands of `copydesk image` end when they are told to."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = """
import asyncio, signal, sys, tempfile
from copydesk.cli.commands.image_request import run

signal.signal(signal.SIGINT, signal.default_int_handler)

async def work():
    with tempfile.TemporaryDirectory(dir=sys.argv[1]):
        signal.raise_signal(int(sys.argv[2]))
        await asyncio.sleep(60)
    return 0

try:
    sys.exit(run(work))
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_command_that_is_told_to_end_leaves_no_work_folder(tmp_path: Path, number: int, code: int) -> None:
    command = [sys.executable, "-c", _PROGRAM, str(tmp_path), str(int(number))]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=50)
    assert ended.returncode == code, ended.stderr
    assert not list(tmp_path.iterdir())
