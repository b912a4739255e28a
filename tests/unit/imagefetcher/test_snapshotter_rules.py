"""What a snapshot is mounted from, and what containerd's labels say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from copydesk.imagefetcher.snapshotter.catalogue import Catalogue, Kind, Snapshot
from copydesk.imagefetcher.snapshotter.errors import SnapshotExistsError, SnapshotMissingError, SnapshotStateError
from copydesk.imagefetcher.snapshotter.labels import Layer, layer_of
from copydesk.imagefetcher.snapshotter.server import updated
from copydesk.imagefetcher.snapshotter.stack import MountSpec, Stack, missing_layer, mounts_of, stack_of

IMAGE = "registry.test/app@sha256:aa"


def snapshot(number: int, kind: Kind = Kind.COMMITTED, image: str = "", whole: bool = False) -> Snapshot:
    return Snapshot(number, f"s{number}", "", kind, 0.0, 0.0, {}, image, whole)


@pytest.fixture
def catalogue(tmp_path: Path) -> Iterator[Catalogue]:
    catalogue = Catalogue(tmp_path / "snapshots.sqlite")
    yield catalogue
    catalogue.close()


def labels(layers: str, reference: str = "registry.test:5000/app:v1") -> dict[str, str]:
    return {
        "containerd.io/snapshot.ref": "sha256:chain",
        "containerd.io/snapshot/cri.image-ref": reference,
        "containerd.io/snapshot/cri.manifest-digest": "sha256:aa",
        "containerd.io/snapshot/cri.image-layers": layers,
    }


@pytest.mark.parametrize(
    ("reference", "image"),
    [
        ("registry.test:5000/app:v1", "registry.test:5000/app@sha256:aa"),
        ("registry.test:5000/app", "registry.test:5000/app@sha256:aa"),
        ("app:v1@sha256:bb", "app@sha256:aa"),
    ],
)
def test_a_layer_names_its_image_by_digest(reference: str, image: str) -> None:
    layer = layer_of(labels("sha256:x", reference))
    assert layer == Layer("sha256:chain", reference, "sha256:aa", last=True)
    assert layer is not None
    assert layer.image == image


def test_only_the_last_layer_lists_no_other_and_a_container_names_none() -> None:
    below = layer_of(labels("sha256:x,sha256:y"))
    assert below is not None
    assert not below.last
    assert layer_of({}) is None
    assert layer_of({"containerd.io/snapshot.ref": "sha256:chain"}) is None
    without = labels("")
    del without["containerd.io/snapshot/cri.image-layers"]
    unsure = layer_of(without)
    assert unsure is not None
    assert not unsure.last


def test_a_lazily_loaded_image_has_all_that_its_layers_are_based_upon() -> None:
    line = [snapshot(4), snapshot(3, image=IMAGE, whole=True), snapshot(2, image=IMAGE), snapshot(1, image=IMAGE)]
    assert stack_of(line) == Stack((4,), IMAGE)
    assert missing_layer(line) is None


def test_a_layer_that_is_only_part_of_such_an_image_is_missing_and_never_given_out_empty() -> None:
    line = [snapshot(3), snapshot(2, image=IMAGE), snapshot(1, image=IMAGE)]
    assert missing_layer(line) == 1
    with pytest.raises(SnapshotStateError, match="part of registry"):
        stack_of(line)


def test_once_unpacked_it_stands_for_all_below() -> None:
    line = [snapshot(3), snapshot(2, whole=True), snapshot(1, image=IMAGE)]
    assert missing_layer(line) is None
    assert stack_of(line) == Stack((3, 2))


def test_mounts_are_as_containerd_s_own_overlay_makes_them() -> None:
    folder, below = Path("/s"), [Path("/s/2/fs"), Path("/s/1/fs")]
    active, view = snapshot(3, Kind.ACTIVE), snapshot(3, Kind.VIEW)
    assert mounts_of(folder, active, []) == [MountSpec("bind", "/s/3/fs", ("rw", "rbind"))]
    assert mounts_of(folder, view, []) == [MountSpec("bind", "/s/3/fs", ("ro", "rbind"))]
    assert mounts_of(folder, view, below[:1]) == [MountSpec("bind", "/s/2/fs", ("ro", "rbind"))]
    lower = "lowerdir=/s/2/fs:/s/1/fs"
    assert mounts_of(folder, view, below) == [MountSpec("overlay", "overlay", ("index=off", lower))]
    written = ("index=off", "workdir=/s/3/work", "upperdir=/s/3/fs", lower)
    assert mounts_of(folder, active, below) == [MountSpec("overlay", "overlay", written)]


def test_the_catalogue_keeps_to_containerd_s_rules(catalogue: Catalogue, tmp_path: Path) -> None:
    catalogue.add("base", "", Kind.ACTIVE, {"a": "1"}, 1.0)
    with pytest.raises(SnapshotStateError):
        catalogue.add("child", "base", Kind.ACTIVE, {}, 1.0)
    catalogue.commit("base", "final", {"b": "2"}, 2.0)
    child = catalogue.add("child", "final", Kind.ACTIVE, {}, 3.0)
    assert [each.name for each in catalogue.ancestry("child")] == ["child", "final"]
    assert catalogue.get("final").labels == {"a": "1", "b": "2"}
    with pytest.raises(SnapshotExistsError):
        catalogue.add("child", "final", Kind.VIEW, {}, 3.0)
    with pytest.raises(SnapshotExistsError):
        catalogue.commit("child", "final", {}, 3.0)
    with pytest.raises(SnapshotStateError, match="based upon"):
        catalogue.remove("final")
    for wrong in ("base", "never"):
        with pytest.raises(SnapshotMissingError):
            catalogue.remove(wrong)
    assert Catalogue(tmp_path / "snapshots.sqlite").get("child") == child
    catalogue.remove("child")
    catalogue.remove("final")
    assert catalogue.all() == []


def test_only_a_whole_image_needs_its_mount(catalogue: Catalogue) -> None:
    catalogue.add("lower", "", Kind.COMMITTED, {}, 1.0, IMAGE)
    assert catalogue.uses(IMAGE) == 0
    catalogue.add("top", "lower", Kind.COMMITTED, {}, 1.0, IMAGE, whole=True)
    assert catalogue.uses(IMAGE) == 1
    catalogue.unpacked("lower", 2.0)
    assert catalogue.get("lower").whole
    assert not catalogue.get("lower").image


@pytest.mark.parametrize(
    ("given", "paths", "after"),
    [
        ({"b": "2"}, [], {"b": "2"}),
        ({"b": "2"}, ["labels"], {"b": "2"}),
        ({"b": "2"}, ["labels.b"], {"a": "1", "b": "2"}),
        ({"a": ""}, ["labels.a"], {}),
        ({"a": "9", "b": "2"}, ["parent"], {"a": "1"}),
    ],
)
def test_an_update_changes_the_labels_that_it_names(
    given: dict[str, str], paths: list[str], after: dict[str, str]
) -> None:
    assert updated({"a": "1"}, given, paths) == after
