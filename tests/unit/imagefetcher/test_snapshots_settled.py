"""Snapshots whose image cannot be mounted, or is mounted for nobody."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from copydesk.imagefetcher.node import Node, TargetError
from copydesk.imagefetcher.snapshotter.catalogue import Catalogue, Kind
from copydesk.imagefetcher.snapshotter.errors import SnapshotExistsError
from copydesk.imagefetcher.snapshotter.snapshots import Snapshots
from copydesk.imagefetcher.store.ledger import MountRow
from copydesk.imagefetcher.upstream import Upstream, UpstreamError

LAYERS = ("sha256:l1,sha256:l2", "sha256:l2")
IMAGE = "registry.test/app@sha256:aa"


class StubNode:
    """Mounts nothing, and remembers what it was asked to; `failure` is raised instead."""

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.asked: dict[str, str] = {}

    @property
    def mounts(self) -> list[MountRow]:
        return [MountRow(target, image, 0.0) for target, image in self.asked.items()]

    def is_mounted(self, target: Path) -> bool:
        return str(target) in self.asked

    async def mount(self, reference: str, target: Path) -> None:
        if self.failure is not None:
            raise self.failure
        self.asked[str(target)] = reference

    async def unmount(self, target: Path, *, detach: bool = False) -> None:
        assert detach
        if str(target) not in self.asked:
            raise TargetError(target, "no image is mounted here")
        del self.asked[str(target)]


@pytest.fixture
def node() -> StubNode:
    return StubNode()


@pytest.fixture
async def snapshots(tmp_path: Path, node: StubNode) -> AsyncIterator[Snapshots]:
    catalogue = Catalogue(tmp_path / "snapshots.sqlite")
    yield Snapshots(tmp_path / "snapshots", catalogue, cast(Node, node), cast(Upstream, None))
    catalogue.close()


def labels(layers: str) -> dict[str, str]:
    return {
        "containerd.io/snapshot.ref": "sha256:chain",
        "containerd.io/snapshot/cri.image-ref": "registry.test/app:v1",
        "containerd.io/snapshot/cri.manifest-digest": "sha256:aa",
        "containerd.io/snapshot/cri.image-layers": layers,
    }


async def pull(snapshots: Snapshots) -> None:
    """As containerd does."""
    parent = ""
    for number, layers in enumerate(LAYERS):
        with pytest.raises(SnapshotExistsError):
            await snapshots.prepare(f"k{number}", parent, labels(layers))
        parent = f"k{number}/lazy"


@pytest.mark.parametrize(
    "failure", [UpstreamError("x", "gone"), OSError(28, "no room"), RecursionError(), KeyError("x")]
)
async def test_whatever_keeps_an_image_from_being_mounted_it_is_pulled_normally(
    snapshots: Snapshots, node: StubNode, failure: Exception
) -> None:
    node.failure = failure
    mounts = await snapshots.prepare("k0", "", labels(LAYERS[0]))
    assert [mount.kind for mount in mounts] == ["bind"]
    assert snapshots.stat("k0").kind is Kind.ACTIVE


async def test_the_last_snapshot_of_an_image_unmounts_it_and_none_before(
    snapshots: Snapshots, node: StubNode
) -> None:
    await pull(snapshots)
    assert list(node.asked.values()) == [IMAGE]
    await snapshots.remove("k1/lazy")
    assert node.asked == {}
    await snapshots.remove("k0/lazy")


async def test_what_is_mounted_for_no_snapshot_is_unmounted_at_the_start(
    snapshots: Snapshots, node: StubNode, tmp_path: Path
) -> None:
    await pull(snapshots)
    kept = dict(node.asked)
    node.asked[str(tmp_path / "snapshots" / "images" / "left")] = "registry.test/left@sha256:bb"
    node.asked["/mnt/by-hand"] = "registry.test/other:v1"
    await snapshots.settle()
    assert node.asked == {**kept, "/mnt/by-hand": "registry.test/other:v1"}


async def test_a_lost_catalogue_gives_no_snapshot_the_folder_of_another(tmp_path: Path, node: StubNode) -> None:
    numbers = []
    for _ in range(2):
        catalogue = Catalogue(tmp_path / "snapshots.sqlite")
        snapshots = Snapshots(tmp_path / "snapshots", catalogue, cast(Node, node), cast(Upstream, None))
        await snapshots.prepare("key", "", {})
        number = snapshots.stat("key").id
        (tmp_path / "snapshots" / str(number) / "fs" / "mine").touch()
        numbers.append(number)
        catalogue.close()
        (tmp_path / "snapshots.sqlite").write_bytes(b"not a database" * 1000)
    assert (tmp_path / "snapshots.sqlite.damaged").exists()
    assert len(set(numbers)) == 2
