"""A converted image, mounted by the kernel, is what GNU tar unpacks of the same layer, in every respect."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from copydesk.imagefetcher.trace import FileRead, Trace
from tests.fixtures.mounted_image import convert, mounted, picture

pytestmark = pytest.mark.usefixtures("root")


def strange_tree(root: Path) -> None:
    """Files of every kind that a layer can hold, with everything that a file can have."""
    deep = root / "deep" / ("n" * 255) / "d"
    deep.mkdir(parents=True)
    (root / "empty").touch()
    (root / "one").write_bytes(b"1")
    (root / "block").write_bytes(os.urandom(4096))
    (root / "large").write_bytes(os.urandom(1_234_567))
    (deep / "same").write_bytes((root / "large").read_bytes())
    os.link(root / "large", root / "deep" / "link")
    (root / "short").symlink_to("one")
    (root / "long").symlink_to("t" * 4095)
    os.mkfifo(root / "pipe")
    os.mknod(root / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    os.mknod(root / "disk", stat.S_IFBLK | 0o640, os.makedev(300, 70_000))
    Path(os.fsdecode(os.fsencode(root) + b"/caf\xe9")).write_bytes(b"latin")
    with (root / "sparse").open("wb") as out:
        out.truncate(50_000_000)
        out.seek(30_000_001)
        out.write(b"island")
    os.setxattr(root / "one", "user.note", b"\0\xff" * 1000)
    os.setxattr(root / "one", "trusted.note", b"")
    capability = bytes.fromhex("0100000200040000000000000000000000000000")
    os.setxattr(root / "block", "security.capability", capability)
    many = root / "many"
    many.mkdir()
    for number in range(2000):
        (many / f"entry-{number}").write_bytes(b"%d" % (number % 10))
    for number, path in enumerate(sorted(root.rglob("*"))):
        if not path.is_symlink():
            path.chmod([0o644, 0o755, 0o4711, 0o1777, 0o000][number % 5])
            if number % 7 == 0:
                os.chown(path, 4_000_000_000, number)
        os.utime(path, ns=(0, 1_000_000_007 * number - 5_000_000_000), follow_symlinks=False)
    os.setxattr(root / "block", "security.capability", capability)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A layer of strange files, made by GNU tar; `tmp_path / "unpacked"` is what it unpacks of it."""
    root = tmp_path / "root"
    root.mkdir()
    strange_tree(root)
    path = tmp_path / "layer.tar"
    keep = ["--format=posix", "--xattrs", "--xattrs-include=*", "--numeric-owner"]
    subprocess.run(["tar", *keep, "--sparse", "-C", str(root), "-cf", str(path), "."], check=True)
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    subprocess.run(["tar", *keep, "-C", str(unpacked), "-xpf", str(path)], check=True)
    shutil.rmtree(root)
    return path


def test_the_kernel_sees_what_tar_unpacks(archive: Path, tmp_path: Path) -> None:
    convert([archive], tmp_path)
    with mounted(tmp_path) as target:
        found, expected = picture(target), picture(tmp_path / "unpacked")
    assert len(expected) > 2000
    assert found.keys() == expected.keys()
    assert [name for name in expected if found[name] != expected[name]] == []


def test_an_order_by_trace_changes_where_bytes_lie_and_nothing_else(archive: Path, tmp_path: Path) -> None:
    reads = [
        FileRead("large", 700_000, 10_000, 0.3),
        FileRead("deep/link", 100, 1, 0.1),
        FileRead("sparse", 0, 40_000_000, 0.2),
        *[FileRead(f"many/entry-{number}", 0, 1, 1.0) for number in range(0, 2000, 100)],
    ]
    index = convert([archive], tmp_path, Trace(1, tuple(reads)))
    assert index.prefetch
    with mounted(tmp_path) as target:
        found, expected = picture(target), picture(tmp_path / "unpacked")
    assert [name for name in expected if found[name] != expected[name]] == []


def test_a_directory_of_a_hundred_thousand_names_is_listed_and_searched(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    names = [f"entry {number:x}" for number in range(100_000)]
    # Names of four files: inodes are slow to make, and names are what this is about.
    for number, name in enumerate(names):
        os.link(root / names[number % 4], root / name) if number >= 4 else (root / name).touch()
    path = tmp_path / "layer.tar"
    subprocess.run(["tar", "-C", str(root), "-cf", str(path), "."], check=True)
    convert([path], tmp_path)
    with mounted(tmp_path) as target:
        assert sorted(entry.name for entry in os.scandir(target)) == sorted(names)
        assert (target / names[12_345]).stat().st_nlink == 25_000
        assert not (target / "entry g").exists()
