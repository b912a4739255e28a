"""The daemon's side of the holder: hand descriptors over, and get them back after a restart."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

from copydesk.imagefetcher.errors import ImageError
from copydesk.imagefetcher.holder.keeper import MESSAGE_BYTES

_TIMEOUT_S = 5.0


class HolderError(ImageError):
    """The holder cannot be reached, or refuses: it carries the socket's path and the reason."""

    hint = "Start one: python -m copydesk.imagefetcher.holder"

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"holder at {path}: {reason}")


class HolderClient:
    """A connection to the holder at `path`; each call raises HolderError when it fails."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(_TIMEOUT_S)
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise HolderError(path, error.strerror or str(error)) from error

    def put(self, name: str, descriptor: int) -> None:
        """Have a copy of `descriptor` kept as `name`; what had that name is closed."""
        held, _ = self._ask("put", name, [descriptor])
        if not held:
            raise HolderError(self.path, f"does not keep {name}")

    def get(self, name: str) -> int | None:
        """Return a copy of what is kept as `name`."""
        _, descriptors = self._ask("get", name)
        return descriptors[0] if descriptors else None

    def drop(self, name: str) -> None:
        """Have `name` closed."""
        self._ask("drop", name)

    def alive(self) -> bool:
        """Whether the holder that this is connected to still answers."""
        try:
            held, _ = self._ask("list", "")
        except HolderError:
            return False
        return held

    def close(self) -> None:
        """Close the connection; what is kept stays kept."""
        self._socket.close()

    def _ask(self, action: str, name: str, descriptors: list[int] | None = None) -> tuple[bool, list[int]]:
        message = json.dumps({"do": action, "name": name}).encode()
        try:
            socket.send_fds(self._socket, [message], descriptors or [])
            answer, received, _, _ = socket.recv_fds(self._socket, MESSAGE_BYTES, 4)
            held = bool(json.loads(answer)["ok"])
        except (OSError, ValueError, KeyError) as error:
            raise HolderError(self.path, str(error) or type(error).__name__) from error
        for descriptor in received:
            os.set_inheritable(descriptor, False)
        return held, received
