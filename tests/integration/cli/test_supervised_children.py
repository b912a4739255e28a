"""The supervisor over small real processes: crashes, refusals, sleepers that do not listen."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

import psutil
import pytest

from copydesk.cli.fleet import events
from copydesk.cli.fleet.plan import ChildSpec, Role
from copydesk.cli.fleet.policy import Backoff
from copydesk.cli.fleet.supervisor import FleetFailedError, Supervisor

E = TypeVar("E", bound=events.Event)

# Each of them says that it is up by a file named after its process.
UP = "import os, pathlib, signal, sys, time; pathlib.Path(f'up.{os.getpid()}').touch(); "
LOG_BYTES = 100_000
CHATTER = UP + (
    "[(print(f'line {n} ' + 'x' * 1_000, flush=True), time.sleep(0.002)) for n in range(1_000)]; time.sleep(600)"
)
SLEEP = UP + "time.sleep(600)"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEP
CRASH = "import sys; print('cannot open the door', file=sys.stderr); sys.exit(1)"
REFUSE = "import sys; print('COPYDESK_X: expected a number'); sys.exit(2)"
RECORD = (
    "import signal, sys; "
    "signal.signal(signal.SIGTERM, lambda *_: (open('order', 'a').write(sys.argv[1] + '\\n'), sys.exit(0))); "
) + SLEEP


def python(name: str, code: str, *, role: Role = Role.POD, grace: float = 30.0) -> ChildSpec:
    return ChildSpec(name, role, (sys.executable, "-S", "-c", code, name), grace=grace)


class TouchedFile:
    """A probe that looks for the file by which a child says that it is up."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    async def is_up(self, spec: ChildSpec, pid: int) -> bool:
        return (self.directory / f"up.{pid}").exists()


class Fleet:
    """A supervisor whose events can be waited for."""

    def __init__(self, directory: Path, specs: list[ChildSpec]) -> None:
        self.seen: list[events.Event] = []
        self.fresh: asyncio.Queue[events.Event] = asyncio.Queue()
        self.supervisor = Supervisor(
            specs,
            logs=directory,
            probe=TouchedFile(directory),
            report=self._take,
            random=lambda: 0.0,
            backoff=Backoff(first=0.01, early_limit=3),
            log_bytes=LOG_BYTES,
            log_check_s=0.01,
        )
        self.supervisor.start()

    def _take(self, event: events.Event) -> None:
        self.seen.append(event)
        self.fresh.put_nowait(event)

    async def next(self, kind: type[E]) -> E:
        while True:
            event = await self.fresh.get()
            if isinstance(event, kind):
                return event

    def pid(self, name: str) -> int:
        child = self.supervisor.members[name].child
        assert child is not None
        return child.pid


Start = Callable[..., Fleet]


@pytest.fixture
async def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Start]:
    monkeypatch.chdir(tmp_path)
    fleets = []

    def start_fleet(*specs: ChildSpec) -> Fleet:
        fleets.append(Fleet(tmp_path, list(specs)))
        return fleets[-1]

    yield start_fleet
    for fleet in fleets:
        fleet.supervisor.kill()
        await fleet.supervisor.stop()


async def test_a_killed_child_comes_back_and_both_are_told(start: Start) -> None:
    fleet = start(python("pod-1", SLEEP), python("pod-2", SLEEP))
    await fleet.supervisor.ready()
    first, other = fleet.pid("pod-1"), fleet.pid("pod-2")
    os.kill(first, signal.SIGKILL)
    exited = await fleet.next(events.ChildExited)
    back = await fleet.next(events.Restarted)
    assert (exited.name, exited.code, exited.how) == ("pod-1", -signal.SIGKILL, "was killed by SIGKILL")
    assert back.name == "pod-1"
    assert back.pid == fleet.pid("pod-1") != first
    assert fleet.pid("pod-2") == other


async def test_exit_code_two_fails_the_fleet_and_shows_what_the_child_said(start: Start) -> None:
    fleet = start(python("pod-1", SLEEP), python("gateway", REFUSE, role=Role.GATEWAY))
    with pytest.raises(FleetFailedError) as caught:
        await fleet.supervisor.ready()
    failed = await fleet.next(events.Failed)
    assert (caught.value.exit_code, failed.name, failed.exit_code) == (2, "gateway", 2)
    assert failed.log_tail == ("COPYDESK_X: expected a number",)


async def test_a_child_that_never_comes_up_is_given_up_with_its_last_words(start: Start) -> None:
    fleet = start(python("eds", CRASH, role=Role.EDS))
    with pytest.raises(FleetFailedError):
        await fleet.supervisor.ready()
    failed = await fleet.next(events.Failed)
    assert failed.exit_code == 1
    assert "3 times in a row" in failed.reason
    assert failed.log_tail == ("cannot open the door",) * 3


async def test_a_program_that_is_not_there_fails_the_fleet(start: Start) -> None:
    fleet = start(ChildSpec("nats", Role.NATS, ("/no/such/nats-server",)))
    with pytest.raises(FleetFailedError, match="No such file"):
        await fleet.supervisor.ready()


async def test_a_child_that_ignores_sigterm_is_killed_when_its_time_is_over(start: Start) -> None:
    fleet = start(python("pod-1", DEAF, grace=0.05))
    await fleet.supervisor.ready()
    pid = fleet.pid("pod-1")
    await fleet.supervisor.stop()
    assert (await fleet.next(events.Killed)).name == "pod-1"
    assert not psutil.pid_exists(pid)


async def test_children_are_stopped_from_the_gateway_to_nats(start: Start, tmp_path: Path) -> None:
    roles = {"nats": Role.NATS, "eds": Role.EDS, "pod-1": Role.POD, "gateway": Role.GATEWAY}
    fleet = start(*(python(name, RECORD, role=role) for name, role in roles.items()))
    await fleet.supervisor.ready()
    await fleet.supervisor.stop()
    assert (tmp_path / "order").read_text().split() == ["gateway", "pod-1", "eds", "nats"]


async def test_nothing_is_restarted_once_the_fleet_stops(start: Start) -> None:
    fleet = start(python("pod-1", SLEEP), python("pod-2", SLEEP))
    await fleet.supervisor.ready()
    await fleet.supervisor.stop()
    assert [type(event) for event in fleet.seen] == [events.ChildUp, events.ChildUp]


async def test_killing_ends_a_child_that_is_still_in_its_time(start: Start) -> None:
    fleet = start(python("pod-1", DEAF, grace=600.0))
    await fleet.supervisor.ready()
    stopping = asyncio.create_task(fleet.supervisor.stop())
    await asyncio.sleep(0)
    fleet.supervisor.kill()
    await stopping
    assert fleet.supervisor.members["pod-1"].child is None


async def test_each_child_leads_a_session_so_the_terminal_does_not_reach_it(start: Start) -> None:
    fleet = start(python("pod-1", SLEEP))
    await fleet.supervisor.ready()
    assert os.getsid(fleet.pid("pod-1")) == fleet.pid("pod-1") != os.getsid(0)


async def test_what_a_dead_child_started_goes_with_it(start: Start, tmp_path: Path) -> None:
    code = "import subprocess; p = subprocess.Popen(['sleep', '600']); open('grandchild', 'w').write(str(p.pid)); "
    fleet = start(python("pod-1", code + SLEEP))
    await fleet.supervisor.ready()
    grandchild = psutil.Process(int((tmp_path / "grandchild").read_text()))
    os.kill(fleet.pid("pod-1"), signal.SIGKILL)
    await fleet.next(events.ChildExited)
    psutil.wait_procs([grandchild], timeout=10)
    assert not grandchild.is_running() or grandchild.status() == psutil.STATUS_ZOMBIE


async def test_the_log_of_the_last_start_is_kept_beside_the_new_one(start: Start, tmp_path: Path) -> None:
    for _ in range(2):
        fleet = start(python("pod-1", f"print('hello', flush=True); {SLEEP}"))
        await fleet.supervisor.ready()
        await fleet.supervisor.stop()
    assert (tmp_path / "pod-1.log").read_text() == (tmp_path / "pod-1.log.1").read_text() == "hello\n"


ORPHAN = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_supervised_children import DEAF, Fleet, python
async def main():
    fleet = Fleet(Path.cwd(), [python("pod-1", DEAF), python("pod-2", DEAF)])
    await fleet.supervisor.ready()
    print(fleet.pid("pod-1"), fleet.pid("pod-2"), flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


def test_kill_9_of_the_supervisor_leaves_no_child_behind(tmp_path: Path) -> None:
    code = ORPHAN.format(tests=str(Path(__file__).parent))
    argv = [sys.executable, "-c", code]
    with subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        children = [psutil.Process(int(pid)) for pid in supervisor.stdout.readline().split()]
        assert len(children) == 2
        supervisor.kill()
    _, alive = psutil.wait_procs(children, timeout=10)
    assert [child for child in alive if child.status() != psutil.STATUS_ZOMBIE] == []


async def test_a_log_does_not_grow_without_end_and_keeps_what_came_last(start: Start, tmp_path: Path) -> None:
    fleet = start(python("pod-1", CHATTER))
    log, before = tmp_path / "pod-1.log", tmp_path / "pod-1.log.1"

    def written() -> str:
        return (before.read_text() if before.exists() else "") + log.read_text()

    largest = 0
    async with asyncio.timeout(30):
        while "line 999 " not in written():
            largest = max(largest, log.stat().st_size)
            await asyncio.sleep(0.01)
    assert largest < 5 * LOG_BYTES
    assert 0 < before.stat().st_size <= LOG_BYTES
    assert not log.read_bytes().startswith(b"\0")
    assert fleet.supervisor.members["pod-1"].restarts == 0
