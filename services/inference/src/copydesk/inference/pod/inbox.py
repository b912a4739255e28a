"""How connections go from one process of the pod to another, so that exactly one of them ever has each.

A message waits in a socket of which both sides may hold the receiving end. Whoever receives it has it: the kernel
sees to it that this is one of them only. So the supervisor can take back what a frozen or dead worker has not
taken, and needs not ask whether it is about to.
"""

from __future__ import annotations

import socket

import msgspec

_MAX_BYTES = 1024


class Connection(msgspec.Struct, frozen=True, tag="connection"):
    """A gateway's connection comes with this; `peer` names a gateway that has been greeted already."""

    peer: str | None = None


class GiveBack(msgspec.Struct, frozen=True, tag="give_back"):
    """The worker has that many connections more than its share."""

    connections: int


class Probe(msgspec.Struct, frozen=True, tag="probe"):
    """Says nothing: who takes it takes messages."""


Message = Connection | GiveBack | Probe


class Sender:
    """The end at which messages go in."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._encode = msgspec.msgpack.Encoder().encode

    def fileno(self) -> int:
        """The descriptor, for a child to inherit."""
        return self._sock.fileno()

    def put(self, message: Message, sock: socket.socket | None = None) -> bool:
        """Send a message; false when there is no room. The socket remains the caller's, to close."""
        try:
            if sock is None:
                self._sock.send(self._encode(message))
            else:
                socket.send_fds(self._sock, [self._encode(message)], [sock.fileno()])
        except OSError:  # full, or as many sockets under way as this user may have
            return False
        return True

    def close(self) -> None:
        """Close this end."""
        self._sock.close()


class Receiver:
    """The end at which messages come out, in order, each at one of those who hold it."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._decode = msgspec.msgpack.Decoder(Message).decode

    def fileno(self) -> int:
        """The descriptor, for a child to inherit or an event loop to watch."""
        return self._sock.fileno()

    def take(self) -> tuple[Message, socket.socket | None] | None:
        """Receive a message and the socket that came with it, if any; None when there is no message."""
        try:
            body, descriptors, _, _ = socket.recv_fds(self._sock, _MAX_BYTES, 1)
        except BlockingIOError:
            return None
        sock = socket.socket(fileno=descriptors[0]) if descriptors else None
        if sock is not None:
            sock.setblocking(False)
        return self._decode(body), sock

    def close(self) -> None:
        """Close this end."""
        self._sock.close()


def inbox() -> tuple[Sender, Receiver]:
    """Make both ends of a new one."""
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    return Sender(left), Receiver(right)
