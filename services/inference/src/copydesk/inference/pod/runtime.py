"""The pod's private directory: unix sockets, notes of failure, the children's metrics."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from copydesk.common.settings import FILE_SUFFIX, ServiceSettings, secret_fields, variable_name

_PREFIX = "copydesk-pod-"
_LOCK = "lock"
_YOUNG_SECONDS = 60.0

TALLY = "tally"
"""The file of counts that workers keep."""


def socket_path(runtime: Path, child: str) -> str:
    """Return the path of the unix socket at which `child` answers."""
    return str(runtime / f"{child}.sock")


class RuntimeDirectory:
    """A directory that only this user may enter, and that exists as long as the pod.

    A supervisor that was killed leaves its directory behind; the next one removes it. A lock that dies with its
    owner tells them apart, where a process id in another container would look dead.
    """

    def __init__(self, parent: Path | None = None) -> None:
        root = parent or Path(tempfile.gettempdir())
        remove_abandoned(root, now=time.time())
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root))
        self._lock = os.open(self.path / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.metrics = self.path / "metrics"
        self.metrics.mkdir()
        self.variables: dict[str, str] = {}

    def socket(self, child: str) -> str:
        """Return the path of the unix socket at which `child` answers."""
        return socket_path(self.path, child)

    def keep_secrets(self, settings: ServiceSettings, environ: Mapping[str, str]) -> None:
        """Have children that start later find the secrets that the pod has started with, in `variables`.

        Their files may hold others by then, and processes of one pod would refuse one another.
        """
        cls = type(settings)
        for field in secret_fields(cls):
            variable = variable_name(cls, field) + FILE_SUFFIX
            if variable not in environ:
                continue
            kept = self.path / field
            kept.touch(0o600)
            kept.write_text(getattr(settings, field).get_secret_value() + "\n", encoding="utf-8")
            self.variables[variable] = str(kept)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def remove_abandoned(root: Path, *, now: float) -> list[Path]:
    """Remove this user's runtime directories under `root` whose owner is gone; return them.

    One that is younger than a minute is left alone: its owner may be about to take the lock.
    """
    abandoned = [path for path in root.glob(f"{_PREFIX}*") if _is_abandoned(path, now)]
    for path in abandoned:
        shutil.rmtree(path, ignore_errors=True)
    return abandoned


def _is_abandoned(path: Path, now: float) -> bool:
    try:
        if path.is_symlink() or path.stat().st_uid != os.getuid() or now - path.stat().st_mtime < _YOUNG_SECONDS:
            return False
        lock = os.open(path / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(lock)
    return True
