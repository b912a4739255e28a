"""The root of the container: the staged image, mounted as on a node, under a layer that takes writes."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from copydesk.imagefetcher.device.channel import Channel, open_device
from copydesk.imagefetcher.device.errors import MountError
from copydesk.imagefetcher.device.image_mount import mount_image
from copydesk.imagefetcher.device.mounts import mount_fuse, mount_overlay, mount_tmpfs, unmount
from copydesk.imagefetcher.device.server import DeviceServer
from copydesk.imagefetcher.tracing.recorder import Recorder
from copydesk.imagefetcher.tracing.staging import Staged

_THREADS = 2
_ATTEMPTS = 8
_SETTINGS = Path("/sys/class/bdi")


@dataclass(frozen=True, slots=True)
class RootFolder:
    """Where the image is mounted to be run, and where what it writes goes."""

    path: Path
    upper: Path


@contextmanager
def root_folder(staged: Staged, recorder: Recorder, folder: Path, *, exact: bool = False) -> Iterator[RootFolder]:
    """Mount everything below `folder`, and unmount it again; `exact` stops the kernel's read-ahead.

    Raises MountError.
    """
    with ExitStack() as stack:
        devices, image, writes, root = (folder / name for name in ("devices", "image", "writes", "root"))
        for target in (devices, image, writes, root):
            target.mkdir()
        _serve(staged, recorder, devices, stack)
        if exact:
            _mount_without_read_ahead(staged, devices, image)
        else:
            mount_image(staged.metadata, devices / staged.volume.name, image)
        stack.callback(unmount, image, detach=True)
        mount_tmpfs(writes)
        stack.callback(unmount, writes, detach=True)
        upper, work = writes / "upper", writes / "work"
        for own in (upper, work):
            own.mkdir()
        mount_overlay(image, upper, work, root)
        stack.callback(unmount, root, detach=True)
        yield RootFolder(root, upper)


def _serve(staged: Staged, recorder: Recorder, target: Path, stack: ExitStack) -> None:
    channel = Channel(open_device())
    stack.callback(channel.close)
    mount_fuse(channel.descriptor, target)
    server = DeviceServer(channel, recorder, _THREADS)
    server.add(staged.volume)
    server.start()
    stack.callback(server.stop)
    # Before the server stops: what is left of the mount must not wait for it.
    stack.callback(unmount, target, detach=True)


def _mount_without_read_ahead(staged: Staged, devices: Path, target: Path) -> None:
    """Mount the image so that the kernel reads only what is asked for.

    The read-ahead of a mount on files is set by a name that nothing tells but its having appeared; where another
    image was mounted at the same moment, we try again.
    """
    _stop_read_ahead(_device_setting(devices))
    for _ in range(_ATTEMPTS):
        before = set(_SETTINGS.iterdir())
        mount_image(staged.metadata, devices / staged.volume.name, target)
        fresh = [path for path in set(_SETTINGS.iterdir()) - before if path.name.startswith("erofs-")]
        own = _device_setting(target)
        if own.exists():
            fresh = [own]
        if len(fresh) == 1:
            _stop_read_ahead(fresh[0])
            return
        unmount(target)
    raise MountError("find the read-ahead of", str(target), errno.EBUSY)


def _device_setting(target: Path) -> Path:
    device = target.stat().st_dev
    return _SETTINGS / f"{os.major(device)}:{os.minor(device)}"


def _stop_read_ahead(setting: Path) -> None:
    """Files that are opened from now on obey."""
    (setting / "read_ahead_kb").write_text("0")
