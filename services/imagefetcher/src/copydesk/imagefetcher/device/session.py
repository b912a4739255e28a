"""Gets the file system of devices going: anew, or where the last daemon left it."""

from __future__ import annotations

import contextlib
import os
import select
from dataclasses import dataclass
from pathlib import Path

from copydesk.common.telemetry import get_logger
from copydesk.imagefetcher.device.channel import Channel, open_device
from copydesk.imagefetcher.device.errors import MountError
from copydesk.imagefetcher.device.mounts import FUSE_TYPE, mount_fuse, mounted, real_place, unmount
from copydesk.imagefetcher.holder.client import HolderClient

HELD_NAME = "devices"

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Session:
    """The channel of the mounted file system; `resumed` says that it was mounted by a daemon before this one."""

    channel: Channel
    resumed: bool


def open_session(target: Path, holder: HolderClient | None) -> Session:
    """Take over what is mounted at `target` if the holder has its descriptor, else mount it.

    The descriptor is with the holder before it is mounted, so that no moment is too early to be killed. Raises
    MountError, HolderError.
    """
    held = holder.get(HELD_NAME) if holder is not None else None
    if held is not None:
        if _is_served_by(held, target):
            return Session(Channel(held), resumed=True)
        os.close(held)
    target.mkdir(parents=True, exist_ok=True) if not _lies_at(target) else _clear(target)
    descriptor = open_device()
    try:
        if holder is not None:
            holder.put(HELD_NAME, descriptor)
        mount_fuse(descriptor, target)
    except BaseException:
        os.close(descriptor)
        raise
    return Session(Channel(descriptor), resumed=False)


def end_session(session: Session, target: Path, holder: HolderClient | None) -> None:
    """Unmount the file system for good, also if somebody reads: who does gets an error."""
    if holder is not None:
        holder.drop(HELD_NAME)
    _clear(target)
    session.channel.close()


def _is_served_by(descriptor: int, target: Path) -> bool:
    """A descriptor that was never mounted, or whose mount is gone, polls as an error."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    failed = any(event & (select.POLLERR | select.POLLNVAL) for _, event in poll.poll(0))
    return not failed and _lies_at(target)


def _lies_at(target: Path) -> bool:
    place = real_place(target)
    return any(mount.target == place and mount.kind == FUSE_TYPE for mount in mounted())


def _clear(target: Path) -> None:
    """Unmount what a daemon without a holder has left."""
    while _lies_at(target):
        _log.info("devices_unmounted", target=str(target))
        unmount(target, detach=True)
    with contextlib.suppress(OSError, MountError):
        target.mkdir(parents=True, exist_ok=True)
