"""Where an RPC server listens: a TCP port, or a unix socket for processes of one machine."""

from __future__ import annotations

import socket
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """A TCP endpoint. Port 0 asks the system for a free one when a server starts on it."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """The path of a unix stream socket; Linux takes at most 107 bytes."""

    path: str

    def __str__(self) -> str:
        return f"unix:{self.path}"


Address = TcpAddress | UnixAddress


def bound_address(sock: socket.socket) -> Address:
    """Say where a bound socket listens."""
    name = sock.getsockname()
    if sock.family == socket.AF_UNIX:
        return UnixAddress(name if isinstance(name, str) else bytes(name).decode())
    return TcpAddress(host=name[0], port=name[1])
