"""Fixtures that any test may ask for, property tests without a deadline, and plain tracebacks in the log.

Triton's kernels are interpreted, on the processor: it must be told so before it is first imported.

How long one example takes says more about the machine than about the code. And a traceback with every local
variable takes seconds to print, where a test has something fail on purpose. A test that sets up the logs, or runs
a command which does, leaves them to the next one as it found them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import settings

from tests.fixtures.garbage import pytest_runtest_teardown
from tests.fixtures.kube import kube, kube_server
from tests.fixtures.lane import native
from tests.fixtures.nats import nats_server
from tests.fixtures.redis import redis_server

__all__ = ["kube", "kube_server", "native", "nats_server", "pytest_runtest_teardown", "redis_server"]

os.environ.setdefault("TRITON_INTERPRET", "1")
settings.register_profile("copydesk", deadline=None)
settings.load_profile("copydesk")
structlog.dev.ConsoleRenderer.get_active().exception_formatter = structlog.dev.plain_traceback


@pytest.fixture(autouse=True)
def logs_left_as_they_were() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    if structlog.is_configured():
        logging.captureWarnings(False)
        root.handlers[:] = handlers
        root.setLevel(level)
        structlog.reset_defaults()
