"""The callers' side of the control socket; blocking, and without the daemon's dependencies."""

from __future__ import annotations

import http.client
import socket
from http import HTTPStatus
from pathlib import Path
from typing import TypeVar

import msgspec

from copydesk.imagefetcher.control.messages import (
    BackgroundRequest,
    ClearAnswer,
    ErrorAnswer,
    MountAnswer,
    MountRequest,
    NodeStatus,
    PrefetchAnswer,
    PrefetchRequest,
    UnmountRequest,
)
from copydesk.imagefetcher.errors import ImageError

T = TypeVar("T")


class DaemonAwayError(ImageError):
    """No daemon answers at `path`; `reason` says why."""

    hint = "Start it: python -m copydesk.imagefetcher"

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"image fetcher at {path}: {reason}")


class DaemonError(ImageError):
    """The daemon cannot do what was asked: it carries the status, the daemon's words and its advice."""

    def __init__(self, status: int, error: str, hint: str) -> None:
        self.status = status
        self.error = error
        self.hint = hint
        super().__init__(error)


class ControlClient:
    """Talks to the daemon that listens at `path`; what fails is a DaemonAwayError or DaemonError."""

    def __init__(self, path: Path, timeout: float = 120.0) -> None:
        self._path = path
        self._timeout = timeout

    def mount(self, reference: str, target: Path) -> MountAnswer:
        """Mount an image; status 404 says that it was not converted."""
        return msgspec.json.decode(
            self._post("/v1/mounts", MountRequest(reference, str(target))), type=MountAnswer
        )

    def unmount(self, target: Path, *, detach: bool = False) -> None:
        """Unmount an image; status 409 says that somebody uses it."""
        self._post("/v1/unmount", UnmountRequest(str(target), detach))

    def prefetch(self, reference: str, *, everything: bool = False) -> PrefetchAnswer:
        """Have an image fetched ahead."""
        return msgspec.json.decode(
            self._post("/v1/prefetch", PrefetchRequest(reference, everything)), type=PrefetchAnswer
        )

    def background(self, on: bool) -> None:
        """Switch the completion of mounted images."""
        self._post("/v1/background", BackgroundRequest(on))

    def clear_cache(self) -> ClearAnswer:
        """Remove all cached sectors, and images that are not mounted."""
        return msgspec.json.decode(self._ask("POST", "/v1/cache/clear"), type=ClearAnswer)

    def status(self) -> NodeStatus:
        """What the node has and does."""
        return msgspec.json.decode(self._ask("GET", "/v1/status"), type=NodeStatus)

    def ready(self) -> bool:
        """Whether the daemon answers and serves."""
        try:
            self._ask("GET", "/readyz")
        except (DaemonAwayError, DaemonError):
            return False
        return True

    def metrics(self) -> str:
        """The daemon's metrics, as Prometheus reads them."""
        return self._ask("GET", "/metrics").decode()

    def _post(self, path: str, body: msgspec.Struct) -> bytes:
        return self._ask("POST", path, msgspec.json.encode(body))

    def _ask(self, method: str, path: str, body: bytes = b"") -> bytes:
        connection = _UnixConnection(self._path, self._timeout)
        try:
            connection.request(method, path, body)
            response = connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise DaemonAwayError(self._path, str(error) or type(error).__name__) from error
        finally:
            connection.close()
        if response.status != HTTPStatus.OK:
            raise _error(response.status, answer)
        return answer


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def _error(status: int, answer: bytes) -> DaemonError:
    try:
        said = msgspec.json.decode(answer, type=ErrorAnswer)
    except msgspec.DecodeError:
        said = ErrorAnswer(f"status {status}")
    return DaemonError(status, said.error, said.hint)
