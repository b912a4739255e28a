"""The configuration of a container, as runc reads it (OCI runtime specification 1.0). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from copydesk.imagefetcher.tracing.process import Process

# What Docker and containerd leave a container that asks for nothing.
_CAPABILITIES = [
    "CAP_AUDIT_WRITE",
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_MKNOD",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_RAW",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
]
_KINDS = ("bounding", "effective", "inheritable", "permitted", "ambient")
_MASKED = ["/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/sys/firmware"]
_READ_ONLY = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]


def runtime_spec(process: Process, root: str, host_files: Sequence[str] = ()) -> dict[str, Any]:
    """A container of `process` in the folder `root`, with the host's network.

    The network is the host's so that a start-up finds what it needs, and that whoever waits for it to be ready can
    ask. `host_files` are shown to it as they are on the host, read-only: names are resolved as they are there.
    """
    return {
        "ociVersion": "1.0.2",
        "process": _process(process),
        "root": {"path": root, "readonly": False},
        "hostname": "trace",
        "mounts": [*_system_mounts(), *(_bind(path) for path in host_files)],
        "linux": {
            "namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")],
            "resources": {"devices": [{"allow": False, "access": "rwm"}]},
            "maskedPaths": _MASKED,
            "readonlyPaths": _READ_ONLY,
        },
    }


def _process(process: Process) -> dict[str, Any]:
    return {
        "terminal": False,
        "user": {"uid": process.uid, "gid": process.gid, "additionalGids": list(process.groups)},
        "args": list(process.arguments),
        "env": [f"{name}={value}" for name, value in process.environment.items()],
        "cwd": process.directory,
        "capabilities": dict.fromkeys(_KINDS if process.uid == 0 else _KINDS[:1], _CAPABILITIES),
    }


def _system_mounts() -> list[dict[str, Any]]:
    safe = ["nosuid", "noexec", "nodev"]
    return [
        {"destination": "/proc", "type": "proc", "source": "proc", "options": safe},
        _tmpfs("/dev", ["nosuid", "strictatime", "mode=755", "size=65536k"]),
        {
            "destination": "/dev/pts",
            "type": "devpts",
            "source": "devpts",
            "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"],
        },
        _tmpfs("/dev/shm", [*safe, "mode=1777", "size=65536k"]),  # noqa: S108 - the container's own
        {"destination": "/dev/mqueue", "type": "mqueue", "source": "mqueue", "options": safe},
        # With the host's network, sysfs cannot be mounted anew.
        {"destination": "/sys", "type": "bind", "source": "/sys", "options": ["rbind", *safe, "ro"]},
    ]


def _tmpfs(target: str, options: list[str]) -> dict[str, Any]:
    return {"destination": target, "type": "tmpfs", "source": "tmpfs", "options": options}


def _bind(path: str) -> dict[str, Any]:
    return {"destination": path, "type": "bind", "source": path, "options": ["rbind", "ro"]}
