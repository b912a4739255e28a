import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from copydesk.cli.bench.engine_process import EngineProcess, StartError
from copydesk.cli.bench.guard import remaining

PARENT = (
    "import subprocess, sys, time\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    "print('child', child.pid, flush=True)\n"
    "time.sleep(600)\n"
)


def eventually(look: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not look():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def states(*pids: int) -> set[str]:
    return {psutil.Process(pid).status() for pid in pids}


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture
def family(tmp_path: Path) -> Iterator[tuple[EngineProcess, int]]:
    process = EngineProcess("family", [sys.executable, "-c", PARENT], os.environ, tmp_path / "log")
    eventually(lambda: (tmp_path / "log").read_text().endswith("\n"))
    yield process, int((tmp_path / "log").read_text().split()[1])
    process.kill()


def test_a_whole_tree_is_frozen_and_thawed(family: tuple[EngineProcess, int]) -> None:
    process, child = family
    process.freeze()
    eventually(lambda: states(process.pid, child) == {psutil.STATUS_STOPPED})
    process.thaw()
    eventually(lambda: psutil.STATUS_STOPPED not in states(process.pid, child))
    assert process.resident_bytes() > 1_000_000


def test_a_frozen_tree_can_be_ended(family: tuple[EngineProcess, int]) -> None:
    process, child = family
    process.freeze()
    process.kill()
    assert gone(process.pid)
    assert gone(child)


def test_what_has_lost_its_parent_is_ended_too(family: tuple[EngineProcess, int]) -> None:
    process, child = family
    os.kill(process.pid, 9)
    eventually(lambda: gone(process.pid))
    assert not gone(child)
    process.kill()
    eventually(lambda: gone(child))


def test_a_program_that_ended_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", "import sys; sys.exit('no such model')"]
    process = EngineProcess("engine", argv, os.environ, tmp_path / "log")
    eventually(lambda: gone(process.pid))
    with pytest.raises(StartError, match="engine: ended with code 1") as caught:
        process.require_alive()
    assert caught.value.log == ("no such model",)
    process.kill()


def test_nothing_of_a_session_outlives_a_command_that_was_killed(tmp_path: Path) -> None:
    script = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from copydesk.cli.bench.engine_process import EngineProcess\n"
        "from copydesk.cli.bench.guard import Guard\n"
        f"log = Path({str(tmp_path / 'log')!r})\n"
        f"process = EngineProcess('family', [sys.executable, '-c', {PARENT!r}], os.environ, log)\n"
        "guard = Guard()\n"
        "guard.watch(process.pid)\n"
        "while not log.read_text().endswith('\\n'): time.sleep(0.01)\n"
        "process.freeze()\n"
        "print('frozen', flush=True)\n"
        "time.sleep(600)\n"
    )
    command = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert command.stdout is not None
    assert command.stdout.readline() == b"frozen\n"
    child = int((tmp_path / "log").read_text().split()[1])
    command.kill()
    command.communicate()
    eventually(lambda: gone(child))


def test_a_guard_forgets_the_sessions_that_were_released() -> None:
    assert remaining(["12\n", "34\n", "-12\n"]) == {34}
