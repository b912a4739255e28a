"""What a process that runs vLLM has started does not outlive it, whatever it died of."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from copydesk.inference.engine.vllm import guard

LEADER = """
import subprocess, sys, time
from copydesk.inference.engine.vllm.guard import watch_over
guard = watch_over()
child = subprocess.Popen([sys.executable, "-S", "-c", {program!r}])
print(guard.pid, child.pid, flush=True)
time.sleep(600)
"""
HANGS = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
STOPS = "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in {"Z", "X"}


@pytest.mark.parametrize("program", [HANGS, STOPS], ids=["hangs", "stopped"])
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_a_dead_leaders_children_are_killed_and_the_guard_goes_too(program: str, end: signal.Signals) -> None:
    command = [sys.executable, "-c", LEADER.format(program=program)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as leader:
        assert leader.stdout is not None
        pids = [int(pid) for pid in leader.stdout.readline().split()]
        assert all(map(alive, pids))
        leader.send_signal(end)
        assert leader.wait(30) == -end
    deadline = time.monotonic() + 30
    while any(map(alive, pids)):
        assert time.monotonic() < deadline
        time.sleep(0.01)


SHARED = """
import os, sys, time
from multiprocessing.shared_memory import SharedMemory
memory = SharedMemory(create=True, size=4096)
print(memory.name, flush=True)
time.sleep(600)
"""


def test_shared_memory_of_the_killed_is_removed() -> None:
    with subprocess.Popen([sys.executable, "-c", SHARED], stdout=subprocess.PIPE, start_new_session=True) as group:
        assert group.stdout is not None
        memory = Path("/dev/shm") / group.stdout.readline().decode().strip()
        assert memory.exists()
        deadline = time.monotonic() + 30
        while not any(b"resource_tracker" in title for title in guard._members(group.pid).values()):
            assert time.monotonic() < deadline  # until then it is a copy of its parent that has yet to become one
            time.sleep(0.01)
        guard.kill_group(group.pid)
    assert not memory.exists()


def test_a_guard_that_comes_too_late_kills_what_is_left_at_once() -> None:
    group = subprocess.Popen([sys.executable, "-S", "-c", HANGS], start_new_session=True)
    subprocess.run([sys.executable, "-I", "-S", guard.__file__, str(group.pid)], check=True, timeout=30)
    assert group.wait(30) == -signal.SIGKILL


def test_nothing_to_kill_is_no_error() -> None:
    gone = subprocess.Popen([sys.executable, "-S", "-c", ""], start_new_session=True)
    gone.wait()
    assert guard.main(gone.pid) == 0
