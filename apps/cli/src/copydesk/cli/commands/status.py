"""`copydesk status`: the processes of a local fleet and the pods as its gateway sees them."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from copydesk.cli import terminal
from copydesk.cli.api import Api, ApiError, FleetUnreachableError, FleetView, PodView, advice
from copydesk.cli.fleet.report import seconds, why
from copydesk.cli.fleet.state import FleetState, ProcessState, ScalingState, read_state, running_fleets

DEFAULT_URL = "http://127.0.0.1:8080"
WATCH_S = 1.0
ROOM_FOR_ADDRESSES = 76
"""In fewer columns a table of pods would cut every one of them short."""
_STATE_COLOURS = {"ready": "green", "warming": "yellow", "draining": "yellow", "unused": "dim"}


class ProcessRow(msgspec.Struct, frozen=True, kw_only=True):
    """One process: `memory_bytes` counts its children too."""

    name: str
    role: str
    pid: int | None
    alive: bool
    uptime_s: float | None
    restarts: int
    memory_bytes: int
    draining: bool = False


class StatusView(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `status` knows; what only its supervisor says is None for a fleet not started here.

    `nats_url` is where the services meet, without the token that it asks for.
    """

    url: str
    nats_url: str | None
    state_dir: str | None
    logs: str | None
    model: str | None
    digest: str | None
    discovery_connected: bool
    processes: tuple[ProcessRow, ...]
    pods: tuple[PodView, ...]
    problem: str | None
    scaling: ScalingState | None = None


def status(url: str | None, state_dir: Path | None, *, as_json: bool, watch: bool) -> int:
    """Show the fleet once, or until Ctrl-C; the exit code is 1 when its gateway does not answer."""
    if watch:
        return _watch(url, state_dir, as_json)
    view = look(url, state_dir)
    if as_json:
        terminal.write_line(msgspec.json.encode(view))
    else:
        terminal.stdout().print(_render(view))
    return 1 if view.problem else 0


def find_fleet(url: str | None, state_dir: Path | None = None) -> tuple[str, FleetState | None]:
    """Choose the fleet that a command means: the one named, else the only or the first one that runs here."""
    if state_dir is not None:
        state = read_state(state_dir)
        return url or (state.url if state else DEFAULT_URL), state
    fleets = running_fleets()
    if url is not None:
        return url, next((fleet for fleet in fleets if fleet.url == url.rstrip("/")), None)
    by_url = {fleet.url: fleet for fleet in fleets}
    chosen = by_url.get(DEFAULT_URL) or (fleets[0] if fleets else None)
    return (chosen.url, chosen) if chosen else (DEFAULT_URL, None)


def look(url: str | None, state_dir: Path | None) -> StatusView:
    """Gather the status of a fleet; what does not answer becomes its `problem`."""
    found, state = find_fleet(url, state_dir)
    api = Api(found)
    pods, problem = _pods(api)
    api.close()
    return StatusView(
        url=found,
        nats_url=state.nats_url if state else None,
        state_dir=state.state_dir if state else None,
        logs=state.logs if state else None,
        model=pods.model or (state.model if state else None),
        digest=pods.model_digest or None,
        discovery_connected=pods.discovery_connected,
        processes=tuple(_rows(state)),
        pods=pods.pods,
        problem=problem,
        scaling=state.scaling if state else None,
    )


def _pods(api: Api) -> tuple[FleetView, str | None]:
    try:
        return api.fleet(), None
    except (ApiError, FleetUnreachableError) as error:
        return FleetView(pods=()), f"{error}; {advice(error)}"


def _rows(state: FleetState | None) -> Iterator[ProcessRow]:
    if state is None:
        return
    supervisor = ProcessState(
        name="copydesk up", role="supervisor", pid=state.pid, started=state.started, restarts=0
    )
    for process in (supervisor, *state.processes):
        yield _row(process)


def _row(process: ProcessState) -> ProcessRow:
    alive, memory = False, 0
    if process.pid is not None:
        try:
            found = psutil.Process(process.pid)
            alive = found.status() != psutil.STATUS_ZOMBIE
            memory = _memory(found, with_children=process.role != "supervisor")
        except psutil.Error:
            alive = False
    uptime = time.time() - process.started if alive and process.started is not None else None
    return ProcessRow(
        name=process.name,
        role=process.role,
        pid=process.pid,
        alive=alive,
        uptime_s=None if uptime is None else round(uptime, 1),
        restarts=process.restarts,
        memory_bytes=memory,
        draining=process.draining,
    )


def _memory(process: psutil.Process, *, with_children: bool) -> int:
    family = [process, *(process.children(recursive=True) if with_children else ())]
    total = 0
    for member in family:
        try:
            # The proportional share: libraries that several processes have in common count once.
            total += member.memory_full_info().pss
        except psutil.Error:
            continue  # it ended while it was being counted
    return total


def _watch(url: str | None, state_dir: Path | None, as_json: bool) -> int:
    if as_json:
        while True:
            terminal.write_line(msgspec.json.encode(look(url, state_dir)))
            time.sleep(WATCH_S)
    console = terminal.stdout()
    if not console.is_terminal:
        while True:  # what is redrawn in place would reach a file or a pipe at the end only
            console.print(_render(look(url, state_dir)), "")
            sys.stdout.flush()
            time.sleep(WATCH_S)
    with Live(_render(look(url, state_dir)), console=console, auto_refresh=False, screen=False) as live:
        while True:
            time.sleep(WATCH_S)
            live.update(_render(look(url, state_dir)), refresh=True)


def _render(view: StatusView) -> RenderableType:
    parts: list[RenderableType] = [Text.assemble(("fleet ", "dim"), (view.url, "bold"))]
    if view.model:
        parts.append(Text(" ".join(("model", view.model, (view.digest or "")[:19])), style="dim"))
    if view.scaling:
        parts.append(Text(_scaling(view.scaling), style="dim"))
    if view.logs:
        parts.append(Text(f"logs in {view.logs}", style="dim"))
    if view.processes:
        parts.append(_process_table(view.processes))
    if view.pods:
        parts.append(_pod_table(view.pods))
    if not view.discovery_connected:
        parts.append(Text("the gateway has lost NATS; it serves with the pods it knows", style="yellow"))
    if view.problem:
        parts.append(Text(view.problem, style="red"))
    elif not view.pods:
        parts.append(Text("the gateway knows of no pod", style="yellow"))
    return Group(*parts)


def _scaling(state: ScalingState) -> str:
    now = f"autoscaled between {state.least} and {state.most} pods, now {state.pods}"
    return f"{now}: {why(state.reason)}" if state.reason else now


def _process_table(rows: tuple[ProcessRow, ...]) -> Table:
    table = _table("process", "pid", "state", "up for", "restarts", "memory")
    for row in rows:
        table.add_row(
            row.name,
            str(row.pid or "-"),
            _doing(row),
            "-" if row.uptime_s is None else seconds(row.uptime_s),
            str(row.restarts),
            f"{row.memory_bytes / 2**20:.0f} MiB" if row.memory_bytes else "-",
        )
    return table


def _doing(row: ProcessRow) -> Text:
    if not row.alive:
        return Text("not running", "red")
    return Text("draining", "yellow") if row.draining else Text("running", "green")


def _pod_table(pods: tuple[PodView, ...]) -> Table:
    roomy = terminal.stdout().width >= ROOM_FOR_ADDRESSES
    address = ("address",) if roomy else ()
    table = _table("pod", *address, "state", "in flight", "load", "ms", "requests", "errors")
    for pod in pods:
        state = Text(pod.state, _STATE_COLOURS.get(pod.state, "red"))
        if not pod.connected and pod.state != "unused":
            state.append(", not connected", "red")
        table.add_row(
            pod.id,
            *((pod.address,) if roomy else ()),
            state,
            str(pod.in_flight),
            f"{_number(pod.running)}+{_number(pod.queued)}/{pod.capacity}",
            _number(pod.ewma_ms),
            str(pod.requests),
            str(pod.errors),
        )
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        text = column in ("process", "pod", "address", "state")
        table.add_column(column, justify="left" if text else "right", no_wrap=True)
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"
