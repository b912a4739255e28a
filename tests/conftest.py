"""Fixtures that any test may ask for, and property tests without a deadline.

How long one example takes says more about the machine than about the code.
"""

from __future__ import annotations

from hypothesis import settings

from tests.fixtures.kube import kube, kube_server
from tests.fixtures.nats import nats_server
from tests.fixtures.redis import redis_server

__all__ = ["kube", "kube_server", "nats_server", "redis_server"]

settings.register_profile("copydesk", deadline=None)
settings.load_profile("copydesk")
