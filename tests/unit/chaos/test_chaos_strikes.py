"""Faults made true on small real processes, and undone, whatever ends them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from copydesk.chaos.kinds import Kind
from copydesk.chaos.schedule import Strike
from copydesk.chaos.strikes import Arena, NobodyError, strike
from copydesk.chaos.striking import Striking
from copydesk.faults import CLEAR, FaultProxy
from tests.fixtures.until import until


def state(pid: int) -> str:
    """The letter by which Linux tells how a process is: S asleep, T stopped, Z dead and not yet buried."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.fixture
def pod() -> Iterator[subprocess.Popen[bytes]]:
    """A supervisor with an engine and a worker below it, which only sleep."""
    shell = "exec -a --name=engine-0 sleep 600 & exec -a --name=worker-0 sleep 600 & wait"
    with subprocess.Popen(["bash", "-c", shell], start_new_session=True) as process:
        yield process
        os.killpg(process.pid, signal.SIGKILL)


def below(pid: int) -> dict[str, int]:
    """The children of a process by their own names."""
    found = {}
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
        found[words[0].decode()] = int(child)
    return found


async def arena_of(pod: subprocess.Popen[bytes], **roots: int) -> Arena:
    await until(lambda: {"--name=engine-0", "--name=worker-0"} <= set(below(pod.pid)))
    there = {"pod-1": pod.pid, **roots}
    return Arena(lambda: there, tuple(there))


def order(kind: Kind, target: str = "pod-1", *, at: float = 0.0, seconds: float = 600.0) -> Strike:
    return Strike(at=at, kind=kind, target=target, seconds=seconds)


async def test_a_frozen_pod_stands_still_with_all_that_it_started_and_goes_on_afterwards(
    pod: subprocess.Popen[bytes],
) -> None:
    arena = await arena_of(pod)
    family = [pod.pid, *below(pod.pid).values()]
    striking = asyncio.create_task(strike(arena, order(Kind.POD_FREEZE)))
    await until(lambda: {state(pid) for pid in family} == {"T"})
    striking.cancel()
    await asyncio.wait({striking})
    await until(lambda: {state(pid) for pid in family} == {"S"})


async def test_a_frozen_engine_leaves_the_rest_of_its_pod_alone(pod: subprocess.Popen[bytes]) -> None:
    arena = await arena_of(pod)
    engine, worker = below(pod.pid)["--name=engine-0"], below(pod.pid)["--name=worker-0"]
    striking = asyncio.create_task(strike(arena, order(Kind.ENGINE_FREEZE)))
    await until(lambda: state(engine) == "T")
    assert "T" not in (state(worker), state(pod.pid))
    striking.cancel()
    await asyncio.wait({striking})
    await until(lambda: state(engine) == "S")


async def test_a_slow_pod_is_stopped_most_of_the_time_and_moves_again_afterwards(
    pod: subprocess.Popen[bytes],
) -> None:
    arena = await arena_of(pod)
    engine = below(pod.pid)["--name=engine-0"]
    striking = asyncio.create_task(strike(arena, order(Kind.POD_SLOW)))
    await until(lambda: state(engine) == "T")
    await until(lambda: state(engine) == "S")
    await until(lambda: state(engine) == "T")
    striking.cancel()
    await asyncio.wait({striking})
    await until(lambda: state(engine) == "S")


STRIKE = """
import asyncio, sys
from copydesk.chaos.kinds import Kind
from copydesk.chaos.schedule import Strike
from copydesk.chaos.strikes import Arena, strike

kind, pid = sys.argv[1:]
arena = Arena(lambda: {"pod-1": int(pid)}, ("pod-1",))
asyncio.run(strike(arena, Strike(at=0.0, kind=Kind(kind), target="pod-1", seconds=600.0)))
"""


@pytest.mark.parametrize("kind", [Kind.POD_FREEZE, Kind.POD_SLOW])
async def test_what_was_frozen_by_one_that_is_killed_goes_on(pod: subprocess.Popen[bytes], kind: Kind) -> None:
    await arena_of(pod)
    engine = below(pod.pid)["--name=engine-0"]
    striker = await asyncio.create_subprocess_exec(sys.executable, "-c", STRIKE, kind.value, str(pod.pid))
    await until(lambda: state(engine) == "T")
    striker.kill()
    await striker.wait()
    await until(lambda: {state(pid) for pid in (pod.pid, *below(pod.pid).values())} == {"S"})


def has_ended(pid: int) -> bool:
    """Nobody is there, or nobody but a zombie; it may go while it is looked at."""
    try:
        return state(pid) == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


async def test_a_blow_kills_one_process_and_is_over_at_once(pod: subprocess.Popen[bytes]) -> None:
    arena = await arena_of(pod)
    worker = below(pod.pid)["--name=worker-0"]
    await asyncio.wait_for(strike(arena, order(Kind.WORKER_KILL, seconds=0.0)), 15)
    await until(lambda: has_ended(worker))
    assert "--name=engine-0" in below(pod.pid)


async def test_who_is_not_there_cannot_be_struck(pod: subprocess.Popen[bytes]) -> None:
    arena = await arena_of(pod)
    with pytest.raises(NobodyError, match="nats"):
        await strike(arena, order(Kind.NATS_AWAY, "nats"))


async def test_a_link_is_well_again_afterwards() -> None:
    async with FaultProxy(("127.0.0.1", 1)) as link:
        arena = Arena(dict, (), {"pod-1": link})
        striking = asyncio.create_task(strike(arena, order(Kind.LINK_DROP)))
        await until(lambda: link.weather != CLEAR)
        assert link.weather.forth.stalled
        assert link.weather.back.stalled
        striking.cancel()
        await asyncio.wait({striking})
        assert link.weather == CLEAR


class Fleet:
    """Something to strike whose pods may be missing, and which counts from zero."""

    def __init__(self, roots: Mapping[str, int]) -> None:
        self.broken: tuple[str, ...] = ()
        self.arena = Arena(lambda: roots, tuple(roots))
        self._began = time.monotonic()

    def clock(self) -> float:
        return time.monotonic() - self._began

    async def missing(self) -> tuple[str, ...]:
        return self.broken

    def striking(self, until: float = 1e9) -> Striking:
        return Striking(self.arena, self.clock, self.missing, until)


async def test_a_pod_is_spared_while_another_is_missing_and_nats_is_not() -> None:
    with subprocess.Popen(["sleep", "600"]) as nats:  # noqa: ASYNC220 - returns at once
        fleet = Fleet({"nats": nats.pid})
        fleet.broken = ("pod-2",)
        striking = fleet.striking()
        pods, control = order(Kind.POD_KILL, seconds=0.0), order(Kind.NATS_AWAY, "nats")
        task = asyncio.create_task(striking.carry_out([pods, control]))
        await until(lambda: state(nats.pid) == "T")
        assert striking.now_on == (control,)
        assert striking.struck == []
        task.cancel()
        await asyncio.wait({task})
        assert state(nats.pid) != "T"
        assert [one.planned for one in striking.struck] == [control]
        nats.kill()


async def test_a_fault_that_would_not_be_over_in_time_is_left_out_and_so_is_one_without_a_victim() -> None:
    fleet = Fleet({})
    striking = fleet.striking(until=5.0)
    await striking.carry_out([order(Kind.POD_FREEZE, seconds=60.0), order(Kind.EDS_KILL, "eds", seconds=0.0)])
    told = {one.planned.kind: one.left_out for one in striking.struck}
    assert "too late" in told[Kind.POD_FREEZE]
    assert told[Kind.EDS_KILL] == "eds is not running"
