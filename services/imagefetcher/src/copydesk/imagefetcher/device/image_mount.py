"""Mounts an image: EROFS on the two files, or on loop devices of them where the kernel wants block devices."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from copydesk.common.telemetry import get_logger
from copydesk.imagefetcher.device.errors import MountError
from copydesk.imagefetcher.device.loop import attach
from copydesk.imagefetcher.device.mounts import mount_erofs

_log = get_logger(__name__)


def mount_image(metadata: Path, device: Path | None, target: Path, *, loop: bool = False) -> bool:
    """Mount an image at `target`; say whether loop devices were needed (with `loop` they are, at any rate).

    Files are read directly where the kernel can: 594 to 1,388 MB/s cold beside 311 to 397 through a second page
    cache, and half the memory. Blocks until the device has answered: call it in a thread. Raises MountError.
    """
    for direct in () if loop else (True, False):
        try:
            mount_erofs(metadata, device, target, direct=direct)
        except MountError as error:
            if error.code not in (errno.ENOTBLK, errno.EINVAL) or (error.code == errno.EINVAL and not direct):
                raise
            _log.info("mount_refused", target=str(target), direct=direct, error=str(error))
        else:
            return False
    mount_by_loop(metadata, device, target)
    return True


def mount_by_loop(metadata: Path, device: Path | None, target: Path) -> None:
    """Mount an image by way of loop devices, which go away with the mount. Raises MountError."""
    keepers: list[int] = []
    try:
        paths = []
        for file in (metadata, device):
            if file is not None:
                path, keeper = attach(file)
                paths.append(path)
                keepers.append(keeper)
        mount_erofs(paths[0], paths[1] if device is not None else None, target)
    finally:
        for keeper in keepers:
            os.close(keeper)
