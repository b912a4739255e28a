"""Layers over one another make the tree that a container runtime would, and nothing leads out of it."""

from __future__ import annotations

import io
import stat
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copydesk.imagefetcher.convert.errors import LayerError, PathEscapeError
from copydesk.imagefetcher.convert.flatten import Flattener
from copydesk.imagefetcher.convert.spool import Spool
from copydesk.imagefetcher.convert.tar_reader import TarReader
from copydesk.imagefetcher.tree import walk
from tests.fixtures.flat_image import flat_image, paths
from tests.fixtures.oci_image import Item, directory, file, hard_link, layer, symlink


def test_an_upper_file_replaces_a_lower_one_and_directories_merge() -> None:
    lower = layer(directory("d", 0o700), file("d/a", b"old"), file("d/b", b"kept"))
    upper = layer(directory("d", 0o755), file("d/a", b"new"), file("d/c", b"added"))
    assert paths(lower, upper) == {"d": "directory", "d/a": b"new", "d/b": b"kept", "d/c": b"added"}
    with flat_image([lower, upper]) as image:
        assert stat.S_IMODE(image.at("d").mode) == 0o755


def test_a_whiteout_hides_a_lower_name_with_all_below_it() -> None:
    lower = layer(directory("d"), file("d/a"), file("d/b"), directory("e"), file("e/f"))
    assert paths(lower, layer(file("d/.wh.a"), file(".wh.e"))) == {"d": "directory", "d/b": b""}


def test_a_whiteout_hides_nothing_of_its_own_layer_wherever_it_stands() -> None:
    lower = layer(directory("d"), file("d/old", b"1"))
    before = layer(file(".wh.d"), directory("d"), file("d/new", b"2"))
    after = layer(directory("d"), file("d/new", b"2"), file(".wh.d"))
    assert paths(lower, before) == paths(lower, after) == {"d": "directory", "d/new": b"2"}


def test_an_opaque_directory_hides_what_lower_layers_put_into_it() -> None:
    lower = layer(directory("d"), file("d/a"), directory("d/e"), file("d/e/f"))
    for upper in (
        layer(directory("d"), file("d/.wh..wh..opq"), file("d/n", b"x"), file("d/e/g", b"y")),
        layer(directory("d"), file("d/n", b"x"), file("d/e/g", b"y"), file("d/.wh..wh..opq")),
    ):
        assert paths(lower, upper) == {"d": "directory", "d/n": b"x", "d/e": "directory", "d/e/g": b"y"}


def test_a_whiteout_of_one_name_leaves_the_other_names_of_the_file() -> None:
    lower = layer(file("a", b"x"), hard_link("b", "a"))
    upper = layer(hard_link("c", "a"), file(".wh.a"))
    assert paths(lower, upper) == {"b": b"x", "c": b"x"}


def test_hard_links_share_a_file_across_layers_until_one_is_replaced() -> None:
    lower = layer(file("a", b"x"), hard_link("d/b", "a"))
    with flat_image([lower, layer(hard_link("c", "/d/../d/b", mode=0o640, uid=7))]) as image:
        assert image.at("a") is image.at("d/b") is image.at("c")
        assert (image.at("a").uid, stat.S_IMODE(image.at("a").mode)) == (7, 0o640)
    assert paths(lower, layer(file("a", b"new"))) == {"a": b"new", "d": "directory", "d/b": b"x"}


def test_names_go_through_symlinks_as_on_a_disk() -> None:
    lower = layer(
        directory("usr/lib"), symlink("lib", "usr/lib"), symlink("abs", "/usr"), symlink("up", "../../usr")
    )
    upper = layer(file("lib/x", b"1"), file("abs/y", b"2"), file("up/z", b"3"), file("lib/.wh.gone"))
    made = paths(lower, upper)
    assert made["usr/lib/x"] == b"1"
    assert made["usr/y"] == b"2"
    assert made["usr/z"] == b"3"
    assert made["lib"] == "-> usr/lib"


def test_a_directory_takes_a_symlinks_place_and_a_file_a_directorys() -> None:
    lower = layer(directory("real"), file("real/x"), symlink("s", "real"), directory("d"), file("d/y"))
    assert paths(lower, layer(directory("s"), file("s/new"), file("d", b"file"))) == {
        "real": "directory",
        "real/x": b"",
        "s": "directory",
        "s/new": b"",
        "d": b"file",
    }


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/passwd", "a/../../etc/passwd", "./etc/./passwd", "//etc//passwd"]
)
def test_a_name_that_would_lead_out_stays_within(name: str) -> None:
    assert paths(layer(file(name, b"x"))) == {"etc": "directory", "etc/passwd": b"x"}


def test_a_symlink_that_would_lead_out_is_followed_within() -> None:
    archive = layer(symlink("out", "../../../../etc"), directory("etc"), file("out/passwd", b"x"))
    assert paths(archive)["etc/passwd"] == b"x"


def test_the_root_stays_as_runtimes_have_it() -> None:
    with flat_image([layer(directory("./", 0o700, uid=5), file("a"))]) as image:
        assert (stat.S_IMODE(image.root.mode), image.root.uid) == (0o755, 0)


@pytest.mark.parametrize(
    "items",
    [
        [hard_link("a", "missing")],
        [directory("d"), hard_link("a", "d")],
        [hard_link("a", "../../../etc/shadow")],
        [file("f"), file("f/below")],
        [symlink("s", "t"), symlink("t", "s"), file("s/x")],
        [symlink("s", "s/s"), file("s/x")],
        [file(".wh.")],
        [file(".wh..")],
        [file("d/.wh...")],
        [file("n" * 256)],
        [file("/".join(["d" * 200] * 30))],
        [file("f", uid=1 << 32)],
        [symlink("s", "t" * 5000)],
        [Item("c", tarfile.CHRTYPE, device=(1 << 12, 0))],
        [Item("odd", b"Z")],
        [Item("hides", tarfile.CHRTYPE, device=(0, 0))],
        [
            file(
                "f",
                xattrs={
                    "user.a": b"x" * 60_000,
                    "user.b": b"x" * 60_000,
                    "user.c": b"x" * 60_000,
                    "user.d": b"x" * 60_000,
                    "user.e": b"x" * 60_000,
                },
            )
        ],
    ],
)
def test_what_no_disk_could_hold_is_refused(items: list[Item]) -> None:
    with pytest.raises(LayerError) as caught:
        paths(layer(*items))
    assert caught.value.path


def test_symlinks_in_a_circle_are_told_as_such() -> None:
    with pytest.raises(PathEscapeError):
        paths(layer(symlink("s", "t"), symlink("t", "s"), file("s/x")))


def test_depth_is_bounded_even_through_symlinks() -> None:
    deep = "/".join(["d"] * 1500)
    entries = [directory(deep), symlink("s", deep), directory("s/" + deep)]
    with pytest.raises(LayerError, match="deeper"):
        paths(layer(*entries))


def test_the_number_of_files_is_bounded() -> None:
    with (
        pytest.raises(LayerError, match="more than 10 files"),
        flat_image([layer(*[file(f"f{number}") for number in range(11)])], max_files=10),
    ):
        pass


def test_books_that_aufs_kept_are_left_out() -> None:
    assert paths(layer(directory(".wh..wh.plnk"), file(".wh..wh.plnk/1.2", b"x"), file(".wh..wh.aufs"))) == {}


def test_attributes_of_kinds_that_no_disk_here_knows_are_counted_and_left_out() -> None:
    with flat_image(
        [layer(file("f", xattrs={"user.a": b"\xff=\n", "com.apple.x": b"1", "trusted.overlay.opaque": b"y"}))]
    ) as image:
        assert image.at("f").xattrs == {b"user.a": b"\xff=\n"}
        assert image.flattener.dropped_xattrs == 2


def test_names_need_not_be_utf8() -> None:
    with flat_image([layer(file("caf\udce9", b"x"), form=tarfile.GNU_FORMAT)]) as image:
        assert list(image.nodes()) == [b"caf\xe9"]


NAMES = st.sampled_from(["a", "b", "c", ".", "..", "", ".wh.a", ".wh.b", ".wh..wh..opq", ".wh...", "n" * 300])
PATHS = st.lists(NAMES, min_size=1, max_size=5).map("/".join)
KINDS = st.sampled_from(
    [tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE]
)
ITEMS = st.builds(Item, name=PATHS, kind=KINDS, link=PATHS, content=st.just(b""), mode=st.integers(0, 0o7777))


@settings(max_examples=300)
@given(st.lists(st.lists(ITEMS, max_size=12), min_size=1, max_size=3))
def test_hostile_layers_make_a_sound_tree_or_are_refused(layers: list[list[Item]]) -> None:
    try:
        with flat_image([layer(*items) for items in layers]) as image:
            seen: set[int] = set()
            for path, node in walk(image.root):
                assert not node.is_directory or id(node) not in seen, "a directory has two names"
                seen.add(id(node))
                assert not {b"", b".", b".."} & set(node.children)
                assert not any(b"/" in name for name in node.children)
                whiteouts = [child for name, child in node.children.items() if name.startswith(b".wh.")]
                assert all(child.is_directory for child in whiteouts), "a whiteout became a file"
                assert node.is_directory or not node.children
                assert len(path) < 4096
    except LayerError:
        pass


def test_names_targets_and_attributes_have_a_limit_together() -> None:
    with Spool() as spool:
        flattener = Flattener(spool, max_text=10_000)
        many = layer(*(symlink(f"s{number}", "t" * 900) for number in range(20)))
        with pytest.raises(LayerError, match="10000 bytes"):
            flattener.apply(TarReader(io.BytesIO(many)))
