"""mount(2) and umount2(2), which util-linux's commands put a loop device in front of."""

from __future__ import annotations

import ctypes
import os
import re
from dataclasses import dataclass
from pathlib import Path

from copydesk.imagefetcher.device import wire
from copydesk.imagefetcher.device.errors import MountError

FUSE_TYPE = "fuse.copydesk"
_MS_RDONLY, _MS_NOSUID, _MS_NODEV = 1, 2, 4
_MNT_DETACH = 2
_TABLE = Path("/proc/self/mountinfo")
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Mounted:
    """A line of /proc/self/mountinfo: where, of which type, and from what."""

    target: str
    kind: str
    source: str


def mount_fuse(descriptor: int, target: Path) -> None:
    """Mount an opened /dev/fuse at `target`, for root to open; raises MountError.

    `allow_other` is for containers, who read in their own name what root has opened.
    """
    options = (
        f"fd={descriptor},rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other,"
        f"max_read={wire.MAX_READ}"
    )
    _mount("copydesk", target, FUSE_TYPE, _MS_RDONLY | _MS_NOSUID | _MS_NODEV, options)


def mount_erofs(metadata: Path, device: Path | None, target: Path, *, direct: bool = False) -> None:
    """Mount the image whose metadata is in the file (or block device) `metadata`, its data in `device`.

    `direct` reads the files past the page cache, so that only the image's own pages are kept. Raises MountError;
    ENOTBLK says that the kernel mounts no files.
    """
    options = [f"device={device}"] if device is not None else []
    _mount(str(metadata), target, "erofs", _MS_RDONLY, ",".join([*options, "directio"] if direct else options))


def mount_overlay(lower: Path, upper: Path, work: Path, target: Path) -> None:
    """Show `lower` at `target`, what is written goes to `upper`; `work` is the kernel's. Raises MountError."""
    _mount("overlay", target, "overlay", 0, f"lowerdir={lower},upperdir={upper},workdir={work}")


def mount_tmpfs(target: Path) -> None:
    """Mount an empty file system in memory. Raises MountError."""
    _mount("copydesk", target, "tmpfs", 0, "mode=755")


def unmount(target: Path, *, detach: bool = False) -> None:
    """Unmount; with `detach` at once, for who uses it still only at the end. Raises MountError."""
    if _LIBC.umount2(os.fsencode(target), _MNT_DETACH if detach else 0) != 0:
        raise MountError("unmount", str(target), ctypes.get_errno())


def mounted() -> list[Mounted]:
    """What is mounted in this mount namespace, in order."""
    # Bytes and split at newlines only: others on this machine may mount at any name that a file can have.
    lines = _TABLE.read_bytes().split(b"\n")
    return [_parse(os.fsdecode(line)) for line in lines if line]


def mounted_at(target: Path) -> Mounted | None:
    """What lies on top at `target`."""
    place = real_place(target)
    return next((mount for mount in reversed(mounted()) if mount.target == place), None)


def real_place(target: Path) -> str:
    """What the kernel calls a mount point: without the symlinks on the way to it, as /var/run often is.

    The mount point itself is not looked at, as nobody may answer there.
    """
    return os.path.join(os.path.realpath(target.parent), target.name)  # noqa: PTH118


def _mount(source: str, target: Path, kind: str, flags: int, options: str) -> None:
    code = _LIBC.mount(
        os.fsencode(source), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), options.encode()
    )
    if code != 0:
        raise MountError(f"mount {kind} at", str(target), ctypes.get_errno())


def _parse(line: str) -> Mounted:
    fields, _, rest = line.partition(" - ")
    kind, source, *_ = rest.split(" ")
    return Mounted(_unescape(fields.split(" ")[4]), kind, _unescape(source))


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
