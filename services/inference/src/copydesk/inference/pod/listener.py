"""The pod's listening socket."""

from __future__ import annotations

import os
import socket

from copydesk.inference.pod.failure import CannotStartError

BACKLOG = 1024


def listen(host: str, port: int) -> socket.socket:
    """Bind and listen on a TCP address; port 0 takes a free one.

    The supervisor holds the socket for the whole life of the pod, so that the port stays the same when a worker
    is restarted, and connections made meanwhile wait rather than fail. Raises `CannotStartError`.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise CannotStartError("HOST", f"{host!r} cannot be resolved: {error.strerror}") from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise CannotStartError("PORT", f"cannot listen on {host}:{port}: {reason}") from error
    listener.setblocking(False)
    return listener


def advertised_host(host: str, advertise: str) -> str:
    """Return the host that others should connect to: a wildcard address means nothing to them."""
    if advertise:
        return advertise
    return socket.gethostname() if host in {"", "0.0.0.0", "::"} else host
