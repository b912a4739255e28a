"""What the processes of a fleet hold, from time to time: descriptors, connections, threads, memory (Linux)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

_PROC = Path("/proc")
EVERY_S = 5.0


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What a process held at second `at`: `connections` are its sockets, which are among its `descriptors`.

    `tasks` are those of its event loop, None of a process that does not tell.
    """

    at: float
    descriptors: int
    connections: int
    threads: int
    memory_bytes: int
    tasks: int | None = None


class Course(msgspec.Struct, frozen=True, kw_only=True):
    """The readings of one process from its start, or that of the run, to its end."""

    name: str
    pid: int
    readings: tuple[Reading, ...]


@dataclass(slots=True)
class Census:
    """Counts, every few seconds, what each process holds. `members` tells the pids and their names at a moment.

    `tasks` asks those who know it how many tasks each of them has, by name.
    """

    members: Callable[[], Mapping[int, str]]
    tasks: Callable[[], Awaitable[Mapping[str, int]]]
    _names: dict[int, str] = field(default_factory=dict)
    _readings: dict[int, list[Reading]] = field(default_factory=dict)

    async def keep_on(self, clock: Callable[[], float]) -> None:
        """Count until cancelled; one process a turn of the event loop, which others need as well."""
        while True:
            await self.count(clock)
            await asyncio.sleep(EVERY_S)

    async def count(self, clock: Callable[[], float]) -> None:
        """Count once."""
        tasks = await self.tasks()
        for pid, name in self.members().items():
            reading = read_process(pid, clock(), tasks.get(name))
            if reading is not None:
                self._names[pid] = name
                self._readings.setdefault(pid, []).append(reading)
            await asyncio.sleep(0)

    @property
    def courses(self) -> tuple[Course, ...]:
        """What was counted, a course for each process that was there; a restarted one has a new course."""
        return tuple(
            Course(name=self._names[pid], pid=pid, readings=tuple(readings))
            for pid, readings in self._readings.items()
        )


def read_process(pid: int, at: float, tasks: int | None = None) -> Reading | None:
    """Read what a process holds, `tasks` being what it told; None if it is gone, a zombie, or somebody else's."""
    try:
        links = [_target(entry) for entry in (_PROC / str(pid) / "fd").iterdir()]
        status = (_PROC / str(pid) / "status").read_text()
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    if "VmRSS" not in fields:
        return None
    return Reading(
        at=at,
        descriptors=len(links),
        connections=sum(link.startswith("socket:") for link in links),
        threads=int(fields["Threads"]),
        memory_bytes=1024 * int(fields["VmRSS"].split()[0]),
        tasks=tasks,
    )


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""
