"""The ground of a run: a fleet of its own with everything that can be broken, or one that runs on this machine."""

from __future__ import annotations

import random
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from copydesk.chaos.kinds import SHAPES, Kind, Track, of_links, owner
from copydesk.chaos.strikes import Arena
from copydesk.cli import terminal
from copydesk.cli.commands.up import UpRequest, resolve
from copydesk.cli.fleet import events
from copydesk.cli.fleet.plan import HOST, Door, FleetOptions, Redis, Role, Scaling, plan_fleet
from copydesk.cli.fleet.ports import free_port
from copydesk.cli.fleet.report import ConsoleReport
from copydesk.cli.fleet.scaling import Limits
from copydesk.cli.fleet.state import FleetState, read_state
from copydesk.faults import FaultProxy

SUPERVISOR, GATEWAY = "up", Role.GATEWAY.value
METRICS = "/metrics"


@dataclass(slots=True)
class Heard:
    """Tells the events of a fleet on standard error, and keeps what was decided of its size."""

    console: ConsoleReport
    sizes: list[str] = field(default_factory=list)

    def __call__(self, event: events.Event) -> None:
        """Take in one event."""
        self.console(event)
        if isinstance(event, events.Scaled):
            self.sizes.append(f"{event.before} -> {event.pods} pods: {event.reason}")


@dataclass(frozen=True, slots=True)
class Ground:
    """A fleet that is to be started as `options` say, where its faults strike, and who hears its events."""

    options: FleetOptions
    arena: Arena
    heard: Heard

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Have a proxy stand before each pod meanwhile."""
        async with AsyncExitStack() as stack:
            for link in self.arena.links.values():
                await stack.enter_async_context(link)
            yield


def own_fleet(state_dir: Path, pods: int, model: Path | None) -> Ground:
    """Plan a fleet on free ports: pods behind proxies, an autoscaler with no choice, a Redis if there is one.

    Raises:
        CannotStartError: The model is no model, or something that a fleet needs is missing.
        PreparationError: The default model cannot be prepared.
    """
    rng = random.Random()
    request = UpRequest(
        pods=pods,
        model=model,
        port=free_port(HOST, rng),
        dtype="auto",
        state_dir=state_dir,
        as_json=False,
        show=False,
        scaling=Scaling(Limits(pods, pods)),
    )
    options = resolve(request, state_dir)
    doors = {name: Door(free_port(HOST, rng), free_port(HOST, rng)) for name in options.pod_names}
    program = shutil.which("redis-server")
    redis = Redis(program, free_port(HOST, rng)) if program else None
    ports = {name: free_port(HOST, rng) for name in (Role.EDS.value, Role.AUTOSCALER.value, *options.pod_names)}
    options = replace(options, doors=doors, redis=redis, metrics_ports=ports)
    heard = Heard(ConsoleReport(terminal.LastingConsole(stderr=True, highlight=False)))
    arena = Arena(
        roots=lambda: roots_of(read_state(state_dir)),
        names=(*(spec.name for spec in plan_fleet(options)), "autoscaler"),
        links={name: FaultProxy((HOST, door.port), port=door.advertised) for name, door in doors.items()},
        pages={
            GATEWAY: options.url + METRICS,
            **{name: f"http://{HOST}:{port}{METRICS}" for name, port in ports.items()},
        },
        resized=lambda: tuple(heard.sizes),
    )
    return Ground(options, arena, heard)


def running_fleet(state: FleetState) -> Arena:
    """Return a fleet that runs here, its supervisor included, as something that faults can strike."""
    state_dir = Path(state.state_dir)

    def roots() -> Mapping[str, int]:
        now = read_state(state_dir)
        return {} if now is None else {SUPERVISOR: now.pid, **roots_of(now)}

    return Arena(roots=roots, names=tuple(roots()), pages={GATEWAY: state.url + METRICS})


def roots_of(state: FleetState | None) -> dict[str, int]:
    """Return the pids of the processes that a fleet's supervisor has started and that run now, by name."""
    processes = state.processes if state else ()
    return {process.name: process.pid for process in processes if process.pid is not None}


def possible(kinds: Sequence[Kind], arena: Arena) -> tuple[Kind, ...]:
    """Return those of `kinds` that can strike there: whose process there is, and links only with proxies."""
    links = () if arena.links else of_links(kinds)
    return tuple(
        kind
        for kind in kinds
        if kind not in links and (SHAPES[kind].track is Track.PODS or owner(kind) in arena.names)
    )
