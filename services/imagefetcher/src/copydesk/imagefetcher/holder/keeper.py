"""The holder's side: one socket, and a dictionary of descriptors.

A message is JSON in one packet of a SOCK_SEQPACKET socket: `{"do": "put" | "get" | "drop" | "list", "name":
NAME}`, with a descriptor beside a `put` and beside the answer to a `get`. The answer is `{"ok": true, "names":
[...]}`, or false for what is not held or not understood. Unknown fields are ignored: this must understand daemons
of many years.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import selectors
import socket
import struct
from pathlib import Path

MESSAGE_BYTES = 4096
MOST_HELD = 64
_CREDENTIALS = struct.Struct("iII")


class Keeper:
    """Holds descriptors for processes of the same user (or root) that connect to the socket at `path`."""

    def __init__(self, path: Path) -> None:
        self._held: dict[str, int] = {}
        self._selector = selectors.DefaultSelector()
        self._server = _listen(path)
        self._selector.register(self._server, selectors.EVENT_READ)

    def serve(self) -> None:
        """Serve until a signal raises an exception."""
        while True:
            for key, _ in self._selector.select():
                client = key.fileobj
                assert isinstance(client, socket.socket)
                if client is self._server:
                    self._accept()
                else:
                    self._hear(client)

    def close(self) -> None:
        """Let go of everything; readers of images that no daemon serves get errors from now on."""
        for descriptor in self._held.values():
            os.close(descriptor)
        self._held.clear()
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]  # sockets only
        self._selector.close()

    def _accept(self) -> None:
        try:
            client, _ = self._server.accept()
        except OSError:  # whoever it was has gone, or no descriptors are left: those that are held must stay
            return
        _, user, _ = _CREDENTIALS.unpack(
            client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        if user not in (0, os.geteuid()):
            client.close()
            return
        client.settimeout(1.0)
        self._selector.register(client, selectors.EVENT_READ)

    def _hear(self, client: socket.socket) -> None:
        try:
            message, descriptors, _, _ = socket.recv_fds(client, MESSAGE_BYTES, 4)
        except OSError:
            message, descriptors = b"", []
        if not message:
            self._selector.unregister(client)
            client.close()
            return
        with contextlib.suppress(OSError):  # who asked and left is not waited for
            self._answer(client, message, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)

    def _answer(self, client: socket.socket, message: bytes, descriptors: list[int]) -> None:
        try:
            asked = json.loads(message)
            action, name = str(asked["do"]), str(asked.get("name", ""))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            action, name = "", ""
        held = self._act(action, name, descriptors)
        found = self._held.get(name) if action == "get" else None
        answer = json.dumps({"ok": held, "names": sorted(self._held)}).encode()
        socket.send_fds(client, [answer], [found] if found is not None else [])

    def _act(self, action: str, name: str, descriptors: list[int]) -> bool:
        if action == "put" and descriptors and name and (name in self._held or len(self._held) < MOST_HELD):
            self._let_go(name)
            self._held[name] = os.dup(descriptors[0])
            return True
        if action == "drop":
            return self._let_go(name)
        return action == "list" or (action == "get" and name in self._held)

    def _let_go(self, name: str) -> bool:
        descriptor = self._held.pop(name, None)
        if descriptor is None:
            return False
        os.close(descriptor)
        return True


def _answers(path: Path) -> bool:
    """Whether somebody listens: a second holder would take the place of the one that the daemon relies on."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True  # it is there, and slow
    return True


def _listen(path: Path) -> socket.socket:
    path.parent.mkdir(parents=True, exist_ok=True)
    if _answers(path):
        raise OSError(errno.EADDRINUSE, "another holder has it, with what it holds")
    path.unlink(missing_ok=True)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server.bind(str(path))
    path.chmod(0o600)  # before it listens, when nobody can connect yet
    server.listen(16)
    return server
