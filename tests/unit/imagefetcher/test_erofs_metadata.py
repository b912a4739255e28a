"""Metadata: read back as it was written, sound to fsck.erofs, the same bytes for the same tree."""

from __future__ import annotations

import contextlib
import io
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copydesk.imagefetcher.erofs.chunks import chunk_bits, pack_chunks, unpack_chunks
from copydesk.imagefetcher.erofs.layout import crc32c
from copydesk.imagefetcher.erofs.reader import MetadataError, read_metadata
from copydesk.imagefetcher.erofs.writer import write_metadata
from copydesk.imagefetcher.erofs.xattr import is_storable, pack_xattrs, unpack_xattrs
from copydesk.imagefetcher.tree import Extent, Node, walk
from tests.fixtures.docker_registry import required_program

DEVICE_BLOCKS = 1000
FILE, DIRECTORY, SYMLINK, FIFO, CHARACTER = 0o100000, 0o040000, 0o120000, 0o010000, 0o020000


def written(root: Node, path: Path) -> Path:
    with path.open("w+b") as out:
        length = write_metadata(root, extents_of, DEVICE_BLOCKS, "tag", out)
    assert path.stat().st_size == length
    return path


def extents_of(node: Node) -> list[Extent]:
    """A content's number says where it lies; odd ones lie in two parts, with a hole of a block between."""
    blocks = -(-node.size // 4096)
    if node.content < 0:
        return []
    if node.content % 2 and blocks > 2:
        return [Extent(0, 1, node.content), Extent(2, blocks - 2, node.content + 100)]
    return [Extent(0, blocks, node.content)]


def picture(root: Node) -> dict[bytes, tuple[object, ...]]:
    return {
        path: (node.mode, node.uid, node.gid, node.mtime, node.xattrs, node.target, node.device, node.size)
        for path, node in walk(root)
    }


NAME = st.binary(min_size=1, max_size=255).filter(
    lambda name: not {0, 47} & set(name) and name not in (b".", b"..")
)
XATTRS = st.dictionaries(
    st.sampled_from([b"user.a", b"user.", b"trusted.x", b"security.capability", b"system.posix_acl_access"]),
    st.binary(max_size=300),
    max_size=3,
)
PLAIN = {
    "uid": st.integers(0, 2**32 - 1),
    "gid": st.integers(0, 2**32 - 1),
    "mtime": st.integers(-(2**62), 2**62),
    "xattrs": XATTRS,
}
BITS = st.integers(0, 0o7777)
LEAVES = st.one_of(
    st.builds(
        Node,
        mode=BITS.map(lambda bits: FILE | bits),
        size=st.integers(1, 800_000),
        content=st.integers(0, 300),
        **PLAIN,
    ),
    st.builds(Node, mode=BITS.map(lambda bits: FILE | bits), **PLAIN),
    st.builds(Node, mode=st.just(SYMLINK | 0o777), target=st.binary(min_size=1, max_size=4095), **PLAIN),
    st.builds(
        Node,
        mode=BITS.map(lambda bits: CHARACTER | bits),
        device=st.tuples(st.integers(0, 4095), st.integers(0, 2**20 - 1)),
        **PLAIN,
    ),
    st.builds(Node, mode=BITS.map(lambda bits: FIFO | bits), **PLAIN),
)


def directories(children: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    below = st.dictionaries(NAME, children, max_size=40)
    return st.builds(Node, mode=BITS.map(lambda bits: DIRECTORY | bits), children=below, **PLAIN)


TREES = directories(st.recursive(LEAVES, directories, max_leaves=60))


@settings(max_examples=100)
@given(TREES)
def test_any_tree_is_read_back_as_it_was_written(tmp_path_factory: pytest.TempPathFactory, root: Node) -> None:
    path = written(root, tmp_path_factory.getbasetemp() / "any.erofs")
    system = read_metadata(path)
    assert picture(system.root) == picture(root)
    assert (system.tag, system.device_blocks) == ("tag", DEVICE_BLOCKS)
    for (_, expected), (_, found) in zip(walk(root), walk(system.root), strict=True):
        if expected.content >= 0:
            assert sum(extent.blocks for extent in system.extents[found.content]) == sum(
                extent.blocks for extent in extents_of(expected)
            )


@settings(max_examples=40)
@given(TREES)
def test_fsck_finds_any_tree_sound(tmp_path_factory: pytest.TempPathFactory, root: Node) -> None:
    program = required_program("fsck.erofs", "erofs-utils")
    folder = tmp_path_factory.getbasetemp()
    device = folder / "device"
    with device.open("wb") as out:
        out.truncate(DEVICE_BLOCKS * 4096)
    path = written(root, folder / "sound.erofs")
    done = subprocess.run([program, f"--device={device}", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout


def example() -> Node:
    shared = Node(FILE | 0o644, size=9000, content=3)
    return Node(
        DIRECTORY | 0o755,
        children={
            b"a": shared,
            b"d": Node(DIRECTORY | 0o700, children={b"b": shared}),
            b"s": Node(SYMLINK | 0o777, target=b"a"),
        },
    )


def test_the_same_tree_gives_the_same_bytes_in_whatever_order_it_was_made(tmp_path: Path) -> None:
    other = example()
    other.children = dict(reversed(other.children.items()))
    one, two = written(example(), tmp_path / "one"), written(other, tmp_path / "two")
    assert one.read_bytes() == two.read_bytes()
    other.children[b"s"].mtime = 1
    assert written(other, tmp_path / "three").read_bytes() != one.read_bytes()


def test_names_of_one_file_stay_names_of_one_file(tmp_path: Path) -> None:
    system = read_metadata(written(example(), tmp_path / "m"))
    assert system.root.children[b"a"] is system.root.children[b"d"].children[b"b"]


def test_a_directory_of_many_names_is_read_back(tmp_path: Path) -> None:
    root = Node(DIRECTORY | 0o755)
    root.children = {b"%d" % number * 20: Node(FILE | 0o600) for number in range(3000)}
    assert picture(read_metadata(written(root, tmp_path / "m")).root) == picture(root)


@settings(max_examples=300)
@given(st.lists(st.tuples(st.integers(0, 1 << 12), st.binary(min_size=1, max_size=8)), min_size=1, max_size=5))
def test_damaged_metadata_is_read_or_refused_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, bytes]]
) -> None:
    path = written(example(), tmp_path_factory.getbasetemp() / "damaged.erofs")
    raw = bytearray(path.read_bytes())
    for at, data in changes:
        start = 1024 + at % (len(raw) - 1024 - len(data))
        raw[start : start + len(data)] = data
    raw[1028:1032] = bytes(4)
    raw[1028:1032] = crc32c(bytes(raw[1024:4096])).to_bytes(4, "little")
    path.write_bytes(raw)
    with contextlib.suppress(MetadataError):
        read_metadata(path)


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(b"")
    with pytest.raises(MetadataError, match="empty"):
        read_metadata(tmp_path / "m")


def test_a_flipped_bit_of_the_superblock_is_noticed(tmp_path: Path) -> None:
    path = written(example(), tmp_path / "m")
    raw = bytearray(path.read_bytes())
    raw[1100] ^= 1
    path.write_bytes(raw)
    with pytest.raises(MetadataError, match="checksum"):
        read_metadata(path)


def test_the_checksum_is_castagnolis() -> None:
    assert crc32c(b"123456789") ^ 0xFFFFFFFF == 0xE3069283


@pytest.mark.parametrize(
    ("size", "extents", "bits"),
    [
        (4096 * 100, [Extent(0, 100, 7)], 7),
        (1, [Extent(0, 1, 0)], 0),
        (4096 * 64, [Extent(0, 16, 0), Extent(16, 48, 99)], 4),
        (4096 * 64, [Extent(0, 3, 0), Extent(3, 61, 99)], 0),
        (4096 * 64 - 5, [Extent(32, 32, 0)], 5),
        (4096 * 64, [], 6),
    ],
)
def test_a_chunk_is_as_large_as_the_extents_allow(size: int, extents: list[Extent], bits: int) -> None:
    assert chunk_bits(size, extents) == bits
    assert list(unpack_chunks(size, bits | 0x20, pack_chunks(size, bits, extents))) == extents


@pytest.mark.parametrize(
    ("name", "storable"),
    [
        (b"user.a", True),
        (b"security.capability", True),
        (b"system.posix_acl_default", True),
        (b"system.nfs4_acl", False),
        (b"com.apple.quarantine", False),
        (b"user." + b"x" * 251, False),
        (b"", False),
    ],
)
def test_only_attributes_that_the_kernel_knows_are_kept(name: bytes, storable: bool) -> None:
    assert is_storable(name, b"value") is storable
    if storable:
        assert unpack_xattrs(pack_xattrs({name: b"value"})) == {name: b"value"}
    else:
        with pytest.raises(ValueError, match="attribute"):
            pack_xattrs({name: b"value"})


def test_what_is_written_may_be_any_seekable_file() -> None:
    out = io.BytesIO()
    assert write_metadata(example(), extents_of, DEVICE_BLOCKS, "tag", out) == len(out.getvalue())
