"""Processes end with their parents and on the first signal; the second one does not wait."""

from __future__ import annotations

import gc
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from copydesk.common.process import describe_exit, run, run_until_signal, settle_memory

TIMEOUT = 20

ORDERLY = """
import asyncio
from copydesk.common.process import run, run_until_signal
from copydesk.common.telemetry import configure_logging

configure_logging("test")

async def work():
    print("ready", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        print("cleaned up", flush=True)

async def main():
    print((await run_until_signal(work())).name, flush=True)

run(main())
"""

STUCK = """
import asyncio
from copydesk.common.process import run, run_until_signal
from copydesk.common.telemetry import configure_logging

configure_logging("test")

async def main():
    asyncio.get_running_loop().call_soon(print, "ready")
    asyncio.get_running_loop().call_soon(__import__("sys").stdout.flush)
    print((await run_until_signal()).name, flush=True)
    await asyncio.Event().wait()

run(main())
"""

PARENT = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1], str(os.getpid())])
child.wait()
"""

CHILD = """
import sys, time
from copydesk.common.process import die_with_parent
die_with_parent(int(sys.argv[1]))
print("ready", __import__("os").getpid(), flush=True)
time.sleep(60)
"""


@contextmanager
def python(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", *arguments], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_cancels_the_work_and_waits_for_it(signum: signal.Signals) -> None:
    with python(ORDERLY) as process:
        assert line_of(process) == "ready"
        process.send_signal(signum)
        assert line_of(process) == "cleaned up"
        assert line_of(process) == signum.name
        assert process.wait(TIMEOUT) == 0


def test_the_second_signal_ends_a_process_that_hangs_in_its_shut_down() -> None:
    with python(STUCK) as process:
        assert line_of(process) == "ready"
        process.send_signal(signal.SIGTERM)
        assert line_of(process) == "SIGTERM"
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT) == 128 + signal.SIGTERM


def test_work_that_ends_by_itself_ends_the_wait() -> None:
    async def work() -> int:
        return 1

    async def main() -> signal.Signals | None:
        return await run_until_signal(work())

    assert run(main()) is None


def test_what_the_work_raises_is_raised() -> None:
    async def work() -> None:
        raise RuntimeError("broken")

    async def main() -> None:
        await run_until_signal(work())

    with pytest.raises(RuntimeError, match="broken"):
        run(main())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="PR_SET_PDEATHSIG is Linux's")
def test_a_child_dies_when_its_parent_is_killed() -> None:
    with python(PARENT, CHILD) as parent:
        word, pid = line_of(parent).split()
        assert word == "ready"
        child = os.pidfd_open(int(pid))
        try:
            parent.kill()
            readable, _, _ = select.select([child], [], [], TIMEOUT)
            assert readable == [child], "the child outlived its parent"
        finally:
            os.close(child)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="PR_SET_PDEATHSIG is Linux's")
def test_a_child_whose_parent_is_gone_already_ends_at_once() -> None:
    not_the_parent = os.getpid() + 1 if os.getppid() != os.getpid() + 1 else os.getpid() + 2
    with python(CHILD, str(not_the_parent)) as process:
        assert process.wait(TIMEOUT) == -signal.SIGTERM
        assert line_of(process) == ""


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "exited with code 0"),
        (3, "exited with code 3"),
        (-9, "was killed by SIGKILL"),
        (-77, "was killed by signal 77"),
    ],
)
def test_an_end_is_put_into_words(code: int, words: str) -> None:
    assert describe_exit(code) == words


def test_settled_memory_is_left_alone_by_the_collector_and_stays_usable() -> None:
    kept = [[number] for number in range(1000)]
    before = gc.get_freeze_count()
    try:
        settle_memory()
        assert gc.get_freeze_count() > before + len(kept)
        assert sum(item[0] for item in kept) == 499_500
    finally:
        gc.unfreeze()
