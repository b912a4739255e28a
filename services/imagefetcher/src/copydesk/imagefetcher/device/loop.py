"""Loop devices, for kernels whose EROFS mounts no files (before Linux 6.12, or built without it).

By ioctl, as in include/uapi/linux/loop.h; each frees itself when its last user is gone.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from pathlib import Path

from copydesk.imagefetcher.device.errors import MountError

_LOOP_CTL_GET_FREE = 0x4C82
_LOOP_CONFIGURE = 0x4C0A
_READ_ONLY, _AUTOCLEAR = 1, 4
_ATTEMPTS = 16
# struct loop_config: fd, block_size, struct loop_info64 (232 bytes, lo_flags at 52), 64 reserved bytes.
_CONFIG = struct.Struct("<II52xI176x64x")


def attach(file: Path) -> tuple[Path, int]:
    """Return a read-only loop device of `file`, and a descriptor that keeps it until it is mounted.

    Raises MountError.
    """
    try:
        backing = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise MountError("attach a loop device to", str(file), error.errno or 0) from error
    try:
        return _attach(backing)
    except OSError as error:
        raise MountError("attach a loop device to", str(file), error.errno or 0) from error
    finally:
        os.close(backing)


def _attach(backing: int) -> tuple[Path, int]:
    for _ in range(_ATTEMPTS):
        device = Path(f"/dev/loop{_free_number()}")
        loop = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.ioctl(loop, _LOOP_CONFIGURE, _CONFIG.pack(backing, 4096, _READ_ONLY | _AUTOCLEAR))
        except OSError as error:
            os.close(loop)
            if error.errno != errno.EBUSY:  # else another process has just taken it
                raise
            continue
        return device, loop
    raise OSError(errno.EBUSY, "no free loop device")


def _free_number() -> int:
    control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    try:
        return fcntl.ioctl(control, _LOOP_CTL_GET_FREE)
    finally:
        os.close(control)
