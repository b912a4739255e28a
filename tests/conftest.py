"""Fixtures that any test may ask for."""

from __future__ import annotations

from tests.fixtures.nats import nats_server

__all__ = ["nats_server"]
