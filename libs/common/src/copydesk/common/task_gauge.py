"""How many tasks an event loop holds, as a metric: one that goes on growing is a leak that no descriptor shows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

METRIC = "asyncio_tasks"
HELP = "Tasks of the event loop that are not done."


def tasks_now() -> int:
    """Count the tasks that are not done, of the loop that runs this; 0 where none does."""
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:
        return 0


class TaskCollector(Collector):
    """The metric `copydesk_<service>_asyncio_tasks`, counted when it is read, which must be on the loop."""

    def __init__(self, service: str) -> None:
        self._name = f"copydesk_{service}_{METRIC}"

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """What Prometheus reads."""
        yield GaugeMetricFamily(self._name, HELP, value=tasks_now())


@contextmanager
def tasks_counted(service: str, registry: CollectorRegistry) -> Iterator[None]:
    """Tell the metric of a service for as long as this is entered."""
    collector = TaskCollector(service)
    registry.register(collector)
    try:
        yield
    finally:
        registry.unregister(collector)
