"""Servers of a known capacity for tests of the load generator."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("slot_server.py")


@dataclass(frozen=True)
class Slots:
    """A running server."""

    url: str
    pid: int


StartSlots = Callable[..., Slots]


@pytest.fixture
def start_slots() -> Iterator[StartSlots]:
    """Start servers that end with the test; see `slot_server.py`."""
    with ExitStack() as stack:

        def start(slots: int, service_ms: float, key: str = "") -> Slots:
            process = subprocess.Popen(
                [sys.executable, str(SCRIPT), str(slots), str(service_ms), key], stdout=subprocess.PIPE
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            assert process.stdout is not None
            stack.callback(process.stdout.close)
            return Slots(f"http://127.0.0.1:{int(process.stdout.readline())}", process.pid)

        yield start
