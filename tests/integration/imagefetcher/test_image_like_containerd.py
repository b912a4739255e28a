"""Layers of every trick, flattened here and unpacked by a real containerd: the same files come out."""

from __future__ import annotations

import stat
import tarfile
from pathlib import Path

import pytest

from tests.fixtures.containerd import running_containerd
from tests.fixtures.docker_registry import DockerRegistry, docker_registry
from tests.fixtures.mounted_image import convert, mounted, picture
from tests.fixtures.oci_image import Item, build, directory, file, hard_link, layer, push, symlink

__all__ = ["docker_registry"]
pytestmark = pytest.mark.usefixtures("root")

LAYERS = [
    layer(
        directory("./", 0o700, uid=9),
        directory("usr/lib", 0o711, uid=3),
        symlink("lib", "usr/lib"),
        symlink("abs", "/usr"),
        symlink("out", "../../../usr"),
        symlink("dangling", "/nowhere"),
        file("lib/libc", b"c" * 5000, mode=0o4755, uid=1, gid=2),
        hard_link("usr/alias", "usr/lib/libc", mode=0o4755, uid=1, gid=2),
        file("implied/parents/f", b"f"),
        directory("opaque"),
        file("opaque/old", b"1"),
        directory("opaque/kept"),
        file("opaque/kept/old", b"2"),
        directory("gone/deep"),
        file("gone/deep/f"),
        file("becomes-directory", b"x"),
        directory("becomes-file"),
        file("becomes-file/f"),
        directory("becomes-link"),
        file("becomes-link/f"),
        file("two", b"two"),
        hard_link("names", "two"),
        Item("null", tarfile.CHRTYPE, device=(1, 3), mode=0o666),
        Item("pipe", tarfile.FIFOTYPE),
        file("noted", xattrs={"user.note": b"1"}),
        file("plain", b"before"),
    ),
    layer(
        file("abs/through-abs", b"3"),
        file("out/through-out", b"4"),
        file("../../escape", b"5"),
        file("/absolute", b"6"),
        file("a/../b/../cleaned", b"7"),
        file("usr/lib/.wh.libc"),
        directory("opaque", 0o700),
        file("opaque/.wh..wh..opq"),
        file("opaque/new", b"8"),
        file(".wh.gone"),
        file(".wh.never-was"),
        directory("becomes-directory"),
        file("becomes-directory/f", b"9"),
        file("becomes-file", b"10"),
        symlink("becomes-link", "usr"),
        file("noted", b"anew"),
        file("plain", b"after", mtime=1_600_000_000),
    ),
    layer(
        hard_link("third", "names", mode=0o600, uid=7, mtime=1_500_000_000),
        file("becomes-link/through-link", b"11"),
        directory("gone"),
        file("gone/again", b"12"),
        file(".wh.pipe"),
        file("opaque/.wh.new"),
        directory("usr/lib", 0o755, uid=4),
        hard_link("linked-link", "dangling"),
        file("twice", b"first"),
        file("twice", b"second"),
    ),
]


def comparable(folder: Path) -> dict[str, tuple[object, ...]]:
    """Without times of directories: unpacking into one changes its time, and no layer says to what."""
    return {
        name: tuple(
            None if number == 3 and stat.S_ISDIR(int(str(seen[0]))) else part for number, part in enumerate(seen)
        )
        for name, seen in picture(folder).items()
    }


def test_the_same_files_come_out_of_containerd(docker_registry: DockerRegistry, tmp_path: Path) -> None:
    push(docker_registry.host, "app", "v1", build(LAYERS))
    archives = []
    for number, content in enumerate(LAYERS):
        archives.append(tmp_path / f"layer-{number}.tar")
        archives[-1].write_bytes(content)
    convert(archives, tmp_path)
    with mounted(tmp_path) as target:
        found, root = comparable(target), target.stat()
    reference = docker_registry.reference("app:v1")
    with running_containerd(tmp_path / "containerd", tmp_path / "no-snapshotter.sock") as containerd:
        # This snapshotter copies a layer's parent and unpacks over it, so that its last folder is the image.
        pulled = containerd.ctr("images", "pull", "--plain-http", "--snapshotter", "native", reference)
        assert pulled.returncode == 0, pulled.stderr
        snapshots = tmp_path / "containerd/root/io.containerd.snapshotter.v1.native/snapshots"
        theirs = max(snapshots.iterdir(), key=lambda path: int(path.name))
        expected, their_root = comparable(theirs), theirs.stat()
    assert (root.st_mode, root.st_uid) == (their_root.st_mode, their_root.st_uid)
    assert len(expected) > 30
    assert found.keys() == expected.keys()
    assert {name: found[name] for name in expected if found[name] != expected[name]} == {
        name: expected[name] for name in expected if found[name] != expected[name]
    }
