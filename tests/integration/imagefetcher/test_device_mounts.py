"""Mounting by way of loop devices, and trees written to the disk, with the real kernel."""

from __future__ import annotations

import os
import random
import stat
from pathlib import Path

import pytest

from copydesk.imagefetcher.convert.flatten import Flattener
from copydesk.imagefetcher.convert.spool import Spool
from copydesk.imagefetcher.convert.tar_reader import TarReader
from copydesk.imagefetcher.device.errors import MountError
from copydesk.imagefetcher.device.image_mount import mount_image
from copydesk.imagefetcher.device.mounts import mounted_at, unmount
from copydesk.imagefetcher.device.session import end_session, open_session
from copydesk.imagefetcher.snapshotter.tree_on_disk import write_tree
from tests.fixtures.lazy_image import LazyImage
from tests.fixtures.oci_image import Item, directory, file, hard_link, layer, symlink


@pytest.mark.parametrize("loop", [False, True])
def test_an_image_is_mounted_from_files_and_from_loop_devices(
    node_folder: Path, image: LazyImage, tree: Path, loop: bool
) -> None:
    metadata, device, target = (node_folder / name for name in ("metadata", "device", "mnt"))
    metadata.write_bytes(image.metadata)
    device.write_bytes(image.device)
    target.mkdir()
    assert mount_image(metadata, device, target, loop=loop) is loop
    mount = mounted_at(target)
    assert mount is not None
    assert mount.source.startswith("/dev/loop") is loop
    assert (target / "large.bin").read_bytes() == (tree / "large.bin").read_bytes()
    unmount(target)
    backing = [path.read_text() for path in Path("/sys/block").glob("loop*/loop/backing_file")]
    assert not any(str(node_folder) in text for text in backing)


def test_what_the_kernel_refuses_is_a_typed_error(node_folder: Path) -> None:
    (node_folder / "metadata").write_bytes(bytes(8192))
    (node_folder / "mnt").mkdir()
    with pytest.raises(MountError, match="mnt"):
        mount_image(node_folder / "metadata", None, node_folder / "mnt")
    with pytest.raises(MountError):
        unmount(node_folder / "mnt")


def test_a_dead_mount_of_a_daemon_without_a_holder_is_cleared_away(node_folder: Path) -> None:
    target = node_folder / "devices"
    first = open_session(target, None)
    os.close(first.channel.descriptor)  # as if the daemon had been killed
    with pytest.raises(OSError, match="not connected"):
        target.stat()
    second = open_session(target, None)
    assert not second.resumed
    end_session(second, target, None)
    assert mounted_at(target) is None


def test_a_tree_is_on_disk_what_its_layers_say(node_folder: Path) -> None:
    content = random.Random(4).randbytes(300_000)
    archive = layer(
        directory("d", mode=0o1770, uid=5, gid=6, mtime=1_600_000_000),
        file("d/large", content, mode=0o4755, uid=7),
        file("d/empty"),
        file("d/xattr", b"x", xattrs={"user.note": b"kept"}),
        symlink("d/link", "../../outside"),
        hard_link("d/hard", "d/large", mode=0o4755, uid=7),
        Item("d/null", b"3", device=(1, 3), mode=0o666),
    )
    target = node_folder / "out"
    target.mkdir()
    with Spool(node_folder) as spool:
        flattener = Flattener(spool)
        (node_folder / "layer.tar").write_bytes(archive)
        with (node_folder / "layer.tar").open("rb") as stream:
            flattener.apply(TarReader(stream))
        write_tree(flattener.root, spool, target)
    inside = target / "d"
    status = inside.stat()
    assert (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid) == (0o1770, 5, 6)
    assert status.st_mtime == 1_600_000_000
    assert (inside / "large").read_bytes() == content
    assert stat.S_IMODE((inside / "large").stat().st_mode) == 0o4755
    assert (inside / "hard").stat().st_ino == (inside / "large").stat().st_ino
    assert (inside / "empty").read_bytes() == b""
    assert os.getxattr(inside / "xattr", "user.note") == b"kept"
    assert (inside / "link").readlink() == Path("../../outside")
    assert stat.S_ISCHR((inside / "null").stat().st_mode)
    assert not (node_folder / "outside").exists()
