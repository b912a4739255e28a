"""Who is measured, round by round in turns, so that what else the machine does favours nobody."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.gateway.figures import Round
from bench.gateway.ours import gateway
from bench.gateway.peers import PEERS, Peer
from bench.gateway.pods import COMPLETIONS, CORRECTIONS, Generator, Question, await_port, mock_pods
from bench.gateway.processes import StartError, cores, cpu_seconds, pinned
from tests.fixtures.nats import free_port

OURS = "copydesk"
OURS_CORRECTING = "copydesk /v1/correct"
OURS_ALL = "copydesk, all pods connected"
OURS_PYTHON = "copydesk, not compiled"
WARM_UP_SECONDS = 1.0
APERTURE = 32


@dataclass(frozen=True, slots=True)
class Contender:
    """What is asked, where, and the process whose CPU time counts."""

    name: str
    port: int
    process: int
    question: Question


@dataclass(frozen=True, slots=True)
class Effort:
    """How long a turn is, how many there are, and the share of saturation at which latency is measured."""

    seconds: float
    rounds: int
    share: float = 0.25


@dataclass(frozen=True, slots=True)
class Site:
    """Programs and folders of one measurement."""

    load: Generator
    pods: Path
    directory: Path


def rounds(site: Site, pods: int, peers: Sequence[Peer], effort: Effort) -> list[Round]:
    """Measure everybody over `pods` mock pods."""
    found: list[Round] = []
    with contextlib.ExitStack() as stack:
        entrants, ports = _started(stack, site, pods, peers)
        for number in range(effort.rounds):
            turn = entrants if number % 2 == 0 else entrants[::-1]
            found += [_measured(site.load, entrant, effort) for entrant in turn]
        rates = {entrant.name: max(one.rate for one in found if one.name == entrant.name) for entrant in entrants}
        for number in range(effort.rounds):
            turn = entrants if number % 2 == 0 else entrants[::-1]
            found += [
                _latency(site.load, entrant, effort.share * rates[entrant.name], effort, ports[0])
                for entrant in turn
            ]
    return found


def _started(
    stack: contextlib.ExitStack, site: Site, pods: int, peers: Sequence[Peer]
) -> tuple[list[Contender], range]:
    ours, other = cores()
    directory = site.directory / f"pods-{pods}"
    directory.mkdir()
    ports = stack.enter_context(mock_pods(site.pods, pods, other, directory / "pods.log"))
    enter = stack.enter_context
    port, process = enter(gateway(ports, ours, other, directory / "ours", APERTURE))
    entrants = [
        Contender(OURS, port, process, COMPLETIONS),
        Contender(OURS_CORRECTING, port, process, CORRECTIONS),
    ]
    port, process = enter(gateway(ports, ours, other, directory / "python", APERTURE, "python"))
    entrants.append(Contender(OURS_PYTHON, port, process, COMPLETIONS))
    if pods > APERTURE:
        port, process = enter(gateway(ports, ours, other, directory / "all", pods))
        entrants.append(Contender(OURS_ALL, port, process, COMPLETIONS))
    for peer in peers:
        try:
            entrants.append(enter(_peer(peer, ports, ours, directory)))
        except StartError as error:
            print(f"left out: {error}", file=sys.stderr)
    return entrants, ports


@contextlib.contextmanager
def _peer(peer: Peer, pods: Sequence[int], core: int, directory: Path) -> Iterator[Contender]:
    program = peer.path()
    assert program is not None
    folder = directory / peer.name
    folder.mkdir()
    port, log = free_port(), folder / "log"
    command = peer.command(program, port, pods, folder)
    with pinned(command, core, log, directory=folder) as process:
        await_port(port, peer.name, process, log)
        yield Contender(peer.name, port, process.pid, COMPLETIONS)


def _measured(load: Generator, entrant: Contender, effort: Effort) -> Round:
    """Saturate an entrant; what comes before does not count."""
    load.run(entrant.port, entrant.question, WARM_UP_SECONDS)
    before = cpu_seconds(entrant.process)
    done = load.run(entrant.port, entrant.question, effort.seconds)
    used = cpu_seconds(entrant.process) - before
    _complain(entrant, done.errors)
    return Round(entrant.name, done.completed / used, done.rate, done.completed, done.errors)


def _latency(load: Generator, entrant: Contender, rate: float, effort: Effort, pod: int) -> Round:
    """Measure what an entrant adds to a pod's latency, at a rate that it can take."""
    ask = partial(load.run, question=entrant.question, seconds=effort.seconds / 2, rate=rate)
    direct, through = ask(pod), ask(entrant.port)
    _complain(entrant, through.errors)
    return Round(
        entrant.name, 0.0, through.rate, through.completed, through.errors, through.p50_ms - direct.p50_ms
    )


def _complain(entrant: Contender, errors: int) -> None:
    if errors:
        print(f"{entrant.name}: {errors} requests failed", file=sys.stderr)


def split(peers: Sequence[Peer] = PEERS) -> tuple[list[Peer], list[Peer]]:
    """The peers that are installed, and those that are not."""
    found = [peer for peer in peers if peer.path() is not None]
    return found, [peer for peer in peers if peer not in found]
