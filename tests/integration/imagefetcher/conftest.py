"""What tests of the image fetcher need: root, a converted image, a registry of its blobs, nothing left behind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.blob_server import BlobServer, BlobUpstream, blob_servers
from tests.fixtures.image_daemon import no_mounts_left
from tests.fixtures.lazy_image import LazyImage, erofs_image

REFERENCE = "registry.test/app:v1"


@pytest.fixture
def root() -> None:
    """Skip, or fail where everything is required, without root and /dev/fuse."""
    reason = None
    if os.geteuid() != 0:
        reason = "mounting needs root"
    elif not Path("/dev/fuse").exists():
        reason = "there is no /dev/fuse"
    if reason is None:
        return
    if os.environ.get("COPYDESK_REQUIRE_ALL") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def image_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the image is made; `tree-0` in it is what the image must be."""
    return tmp_path_factory.mktemp("image")


@pytest.fixture(scope="session")
def image(image_folder: Path) -> LazyImage:
    """An image of 8 MiB in sectors of 1 MiB."""
    return erofs_image(image_folder)


@pytest.fixture
def tree(image: LazyImage, image_folder: Path) -> Path:
    """The files of the image, as they were."""
    return image_folder / "tree-0"


@pytest.fixture
def server() -> Iterator[BlobServer]:
    """A registry of blobs that misbehaves on command."""
    with blob_servers() as servers:
        yield servers[0]


@pytest.fixture
def upstream(server: BlobServer, image: LazyImage) -> BlobUpstream:
    """A registry that knows `image` by `reference`."""
    upstream = BlobUpstream(server)
    upstream.add(REFERENCE, image)
    return upstream


@pytest.fixture
def reference() -> str:
    """The name of the image."""
    return REFERENCE


@pytest.fixture
def node_folder(tmp_path: Path, root: None) -> Iterator[Path]:
    """A folder for a node's files and mounts, none of which stays."""
    with no_mounts_left(tmp_path):
        yield tmp_path
