"""Which ports are free, and who holds one that is not."""

from __future__ import annotations

import random
import socket
from dataclasses import dataclass

import psutil

from copydesk.common.errors import CopydeskError

# Below the range from which the kernel takes ports for outgoing connections: a server that restarts on its
# old port must not find it lent to a client in the meantime.
_FIRST, _LAST = 20_000, 32_000


class NoFreePortError(CopydeskError):
    """Every port that was tried on `host` is taken."""

    def __init__(self, host: str) -> None:
        self.host = host
        super().__init__(f"no free port found on {host}")


@dataclass(frozen=True, slots=True)
class PortHolder:
    """The process that listens on a port; no pid when it belongs to somebody else."""

    port: int
    pid: int | None = None
    command: str = ""

    def __str__(self) -> str:
        """Name the process for a person."""
        return f"process {self.pid} ({self.command})" if self.pid else "a process of another user"


def is_free(host: str, port: int) -> bool:
    """Say whether a server could listen on this port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_port(host: str, rng: random.Random) -> int:
    """Find a free port, picked at random so that two fleets that start together do not meet."""
    for _ in range(200):
        port = rng.randrange(_FIRST, _LAST)
        if is_free(host, port):
            return port
    raise NoFreePortError(host)


def port_holder(port: int) -> PortHolder:
    """Find out who listens on a port of this machine, as far as the system tells."""
    try:
        connections = psutil.net_connections(kind="tcp")
    except psutil.Error:
        return PortHolder(port)
    for connection in connections:
        if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port:
            return _holder(port, connection.pid)
    return PortHolder(port)


def _holder(port: int, pid: int | None) -> PortHolder:
    if pid is None:
        return PortHolder(port)
    try:
        command = " ".join(psutil.Process(pid).cmdline())
    except psutil.Error:
        command = "?"
    return PortHolder(port, pid, command if len(command) <= 60 else f"{command[:57]}...")
