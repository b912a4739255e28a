"""The metric of tasks: those of the loop that runs when it is read, and none where there is no loop."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry, generate_latest

from copydesk.common.task_gauge import tasks_counted, tasks_now


async def test_a_task_counts_until_it_is_done() -> None:
    registry, before = CollectorRegistry(), tasks_now()
    waiting = asyncio.create_task(asyncio.Event().wait())
    with tasks_counted("eds", registry):
        assert f"copydesk_eds_asyncio_tasks {before + 1}.0" in generate_latest(registry).decode()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert f"copydesk_eds_asyncio_tasks {before}.0" in generate_latest(registry).decode()
    assert "asyncio_tasks" not in generate_latest(registry).decode()


def test_without_a_loop_there_are_no_tasks() -> None:
    assert tasks_now() == 0
