"""How the command is run: by runc, or where there is none in namespaces of its own by util-linux's unshare."""

from __future__ import annotations

import json
import os
import shutil
import stat
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from copydesk.imagefetcher.tracing.bundle import runtime_spec
from copydesk.imagefetcher.tracing.errors import NoRuntimeError
from copydesk.imagefetcher.tracing.process import Process

_HOST_FILES = ("/etc/resolv.conf", "/etc/hosts")
_DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0)}


@dataclass(frozen=True, slots=True)
class Launch:
    """A command for the host; `isolation` is what runs it, `clean_up` a command for afterwards.

    What keeps the runtime from starting the command is in `log`, in lines of JSON.
    """

    isolation: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    clean_up: tuple[str, ...] = ()
    log: Path | None = None

    def failure(self) -> str:
        """Why the command was not started, empty if it was."""
        if self.log is None or not self.log.exists():
            return ""
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return next((str(line.get("msg", "")) for line in lines if line.get("level") in ("error", "fatal")), "")


def find_runtime() -> tuple[str, str]:
    """The name and path of what runs containers here; raises NoRuntimeError."""
    for name in ("runc", "unshare"):
        path = shutil.which(name)
        if path is not None:
            return name, path
    raise NoRuntimeError("there is neither runc nor unshare")


def prepare(runtime: tuple[str, str], process: Process, folder: Path, root: Path, upper: Path) -> Launch:
    """How to run `process` in `root`, whose changes go to `upper`; files of its own go into `folder`."""
    name, path = runtime
    return _by_runc(path, process, folder, root) if name == "runc" else _by_unshare(path, process, root, upper)


def _by_runc(runc: str, process: Process, folder: Path, root: Path) -> Launch:
    bundle, state = folder / "bundle", folder / "runc"
    bundle.mkdir()
    host_files = [file for file in _HOST_FILES if Path(file).is_file()]
    (bundle / "config.json").write_text(json.dumps(runtime_spec(process, str(root), host_files)))
    name = f"copydesk-trace-{uuid.uuid4().hex[:12]}"
    base = (runc, "--root", str(state))
    log = folder / "runc.log"
    environment = {"PATH": os.environ.get("PATH", os.defpath)}
    return Launch(
        "runc",
        (*base, "--log", str(log), "--log-format", "json", "run", "--bundle", str(bundle), name),
        environment,
        (*base, "delete", "--force", name),
        log,
    )


def _by_unshare(unshare: str, process: Process, root: Path, upper: Path) -> Launch:
    """No capabilities are dropped and no files of the host shown: enough to see what a start-up reads."""
    (upper / "proc").mkdir(exist_ok=True)
    devices = upper / "dev"
    devices.mkdir(exist_ok=True)
    for device, numbers in _DEVICES.items():
        os.mknod(devices / device, stat.S_IFCHR | 0o666, os.makedev(*numbers))
        (devices / device).chmod(0o666)
    namespaces = ("--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child")
    user = ("--setgid", str(process.gid), "--setuid", str(process.uid)) if process.uid or process.gid else ()
    place = ("--root", str(root), "--mount-proc", "--wd", process.directory)
    return Launch(
        "namespaces", (unshare, *namespaces, *place, *user, *process.arguments), dict(process.environment)
    )
