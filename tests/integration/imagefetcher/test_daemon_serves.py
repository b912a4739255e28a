"""The daemon with real FUSE and EROFS mounts: what is read is what was converted, and fetched once."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from copydesk.common.bus import Bus
from copydesk.common.messages import ScaleDecision, scale_subject
from copydesk.imagefetcher.control.client import ControlClient, DaemonError
from copydesk.imagefetcher.daemon import StateInUseError
from copydesk.imagefetcher.device.mounts import mounted, unmount
from tests.fixtures.blob_server import BlobServer, BlobUpstream
from tests.fixtures.image_daemon import running_daemon, settings_in, wait_until
from tests.fixtures.lazy_image import LazyImage, erofs_image
from tests.fixtures.nats import NatsServer


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def forget_pages() -> None:
    """Have the next read come from the device again."""
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("1")


def assert_same(target: Path, tree: Path) -> None:
    assert {path.name for path in target.iterdir()} == {path.name for path in tree.iterdir()}
    for path in tree.iterdir():
        assert sha256(target / path.name) == sha256(path)


def held(client: ControlClient) -> int:
    return client.status().images[0].held_sectors


def test_a_mounted_image_is_the_original_file_by_file(
    node_folder: Path, upstream: BlobUpstream, tree: Path, reference: str
) -> None:
    with running_daemon(settings_in(node_folder), upstream) as client:
        answer = client.mount(reference, node_folder / "mnt")
        assert_same(node_folder / "mnt", tree)
        image = client.status().images[0]
        assert (image.image, image.held_sectors) == (answer.image, image.sectors)
        assert image.mounts == (str(node_folder / "mnt"),)
        client.unmount(node_folder / "mnt")
        assert client.status().images[0].mounts == ()


def test_listing_an_image_fetches_no_data(node_folder: Path, upstream: BlobUpstream, reference: str) -> None:
    with running_daemon(settings_in(node_folder), upstream) as client:
        client.mount(reference, node_folder / "mnt")
        assert sum(path.stat().st_size > 0 for path in (node_folder / "mnt").iterdir()) == 9
        assert held(client) == 0


def test_an_image_without_a_converted_form_is_refused_as_such(node_folder: Path, upstream: BlobUpstream) -> None:
    with running_daemon(settings_in(node_folder), upstream) as client:
        with pytest.raises(DaemonError, match="has not been converted") as caught:
            client.mount("registry.test/other:v1", node_folder / "mnt")
        assert caught.value.status == 404


def test_mounting_twice_is_fine_and_another_image_there_is_not(
    node_folder: Path, server: BlobServer, upstream: BlobUpstream, reference: str
) -> None:
    upstream.add("registry.test/other:v1", erofs_image(node_folder / "other", megabytes=1, seed=7))
    with running_daemon(settings_in(node_folder), upstream) as client:
        first = client.mount(reference, node_folder / "mnt")
        assert client.mount(reference, node_folder / "mnt") == first
        with pytest.raises(DaemonError, match="another image") as caught:
            client.mount("registry.test/other:v1", node_folder / "mnt")
        assert caught.value.status == 409
        assert sum(mount.target == str(node_folder / "mnt") for mount in mounted()) == 1


def test_an_image_in_use_is_not_unmounted_unless_detached(
    node_folder: Path, upstream: BlobUpstream, tree: Path, reference: str
) -> None:
    with running_daemon(settings_in(node_folder), upstream) as client:
        client.mount(reference, node_folder / "mnt")
        with (node_folder / "mnt" / "small-0.txt").open("rb") as file:
            with pytest.raises(DaemonError) as caught:
                client.unmount(node_folder / "mnt")
            assert caught.value.status == 409
            client.unmount(node_folder / "mnt", detach=True)
            assert file.read() == (tree / "small-0.txt").read_bytes()


def test_twenty_readers_at_once_fetch_each_sector_once(
    node_folder: Path, server: BlobServer, upstream: BlobUpstream, tree: Path, reference: str, image: LazyImage
) -> None:
    with running_daemon(settings_in(node_folder), upstream) as client:
        targets = [node_folder / f"mnt-{number}" for number in range(20)]
        for target in targets:
            client.mount(reference, target)
        server.requests.clear()
        with ThreadPoolExecutor(20) as pool:
            digests = set(pool.map(lambda target: sha256(target / "large.bin"), targets))
        assert digests == {sha256(tree / "large.bin")}
        assert set(server.requests.values()) == {1}
        assert sum(server.requests.values()) <= len(image.index.data.sectors)


def test_two_images_fetch_a_sector_they_share_once(
    node_folder: Path, server: BlobServer, upstream: BlobUpstream, image: LazyImage, reference: str
) -> None:
    with running_daemon(settings_in(node_folder), upstream) as client:
        client.mount(reference, node_folder / "mnt")
        first = sha256(node_folder / "mnt" / "large.bin")
        fetched = held(client)
        twin = erofs_image(node_folder / "twin", prefetch=(0,))  # the same files, but another index
        upstream.add("registry.test/twin:v1", twin)
        client.mount("registry.test/twin:v1", node_folder / "twin-mnt")
        server.down = True
        assert sha256(node_folder / "twin-mnt" / "large.bin") == first
        assert client.status().cache.sectors == fetched


@pytest.mark.parametrize("fault", ["truncate", "flip", "whole", "shift", "401", "503", "reset"])
def test_a_source_that_misbehaves_once_is_asked_again(
    node_folder: Path, server: BlobServer, upstream: BlobUpstream, tree: Path, reference: str, fault: str
) -> None:
    with running_daemon(settings_in(node_folder), upstream) as client:
        client.mount(reference, node_folder / "mnt")
        server.faults = [fault, fault]
        assert_same(node_folder / "mnt", tree)
        assert "copydesk_imagefetcher_source_failures_total{fault=" in client.metrics()


@pytest.mark.parametrize("fault", ["truncate", "flip", "whole", "shift", "503"])
def test_a_source_that_goes_on_misbehaving_gives_an_error_and_never_wrong_bytes(
    node_folder: Path, server: BlobServer, upstream: BlobUpstream, tree: Path, reference: str, fault: str
) -> None:
    with running_daemon(settings_in(node_folder), upstream) as client:
        client.mount(reference, node_folder / "mnt")
        server.always = fault
        with pytest.raises(OSError, match="Input/output error") as caught:
            sha256(node_folder / "mnt" / "large.bin")
        assert caught.value.errno == errno.EIO
        server.always = None
        assert_same(node_folder / "mnt", tree)


def test_a_broken_mirror_is_passed_over(
    node_folder: Path, server: BlobServer, image: LazyImage, tree: Path, reference: str
) -> None:
    mirror = BlobServer()
    try:
        upstream = BlobUpstream(mirror, server)
        upstream.add(reference, image)
        mirror.always = "flip"
        with running_daemon(settings_in(node_folder), upstream) as client:
            client.mount(reference, node_folder / "mnt")
            assert_same(node_folder / "mnt", tree)
            assert 'source_failures_total{fault="digest",source="mirror"}' in client.metrics()
    finally:
        mirror.close()


def test_running_readers_do_not_notice_that_the_registry_is_gone_once_the_image_is_complete(
    node_folder: Path, server: BlobServer, upstream: BlobUpstream, tree: Path, reference: str
) -> None:
    with running_daemon(
        settings_in(node_folder, background=True, background_mb_s=1000.0, background_delay_ms=0), upstream
    ) as client:
        client.mount(reference, node_folder / "mnt")
        wait_until(lambda: held(client) == client.status().images[0].sectors)
        server.down = True
        upstream.down = True
        assert_same(node_folder / "mnt", tree)


def test_the_start_up_s_sectors_are_fetched_ahead_several_in_one_request(
    node_folder: Path, server: BlobServer, upstream: BlobUpstream, image_folder: Path
) -> None:
    hot = erofs_image(node_folder / "hot", seed=3, prefetch=(0, 1, 2, 5))
    upstream.add("registry.test/hot:v1", hot)
    with running_daemon(settings_in(node_folder, prefetch_fetches=1), upstream) as client:
        client.mount("registry.test/hot:v1", node_folder / "mnt")
        wait_until(lambda: held(client) == 4)
        sectors = hot.index.data.sectors
        assert server.requests[(sectors[0].offset, sectors[2].offset + sectors[2].length)] == 1


def test_a_cache_smaller_than_the_image_serves_it_all_the_same(
    node_folder: Path, upstream: BlobUpstream, reference: str
) -> None:
    big = erofs_image(node_folder / "big", megabytes=24, seed=5)
    upstream.add("registry.test/big:v1", big)
    with running_daemon(settings_in(node_folder, cache_limit_mb=16), upstream) as client:
        client.mount("registry.test/big:v1", node_folder / "mnt")
        for _ in range(2):
            assert_same(node_folder / "mnt", node_folder / "big" / "tree-5")
            forget_pages()
        cache = client.status().cache
        assert cache.evicted > 0
        assert cache.size <= cache.limit


def test_clearing_the_cache_frees_the_disk_and_readers_go_on(
    node_folder: Path, upstream: BlobUpstream, tree: Path, reference: str
) -> None:
    with running_daemon(settings_in(node_folder), upstream) as client:
        client.mount(reference, node_folder / "mnt")
        assert_same(node_folder / "mnt", tree)
        assert client.clear_cache().freed > 8 << 20
        assert held(client) == 0
        forget_pages()
        assert_same(node_folder / "mnt", tree)


def test_a_known_image_is_mounted_while_its_registry_is_away(
    node_folder: Path, upstream: BlobUpstream, reference: str
) -> None:
    with running_daemon(settings_in(node_folder), upstream) as client:
        client.mount(reference, node_folder / "mnt")
        client.unmount(node_folder / "mnt")
        upstream.down = True
        client.mount(reference, node_folder / "mnt")
        with pytest.raises(DaemonError) as caught:
            client.mount("registry.test/unknown:v1", node_folder / "other")
        assert caught.value.status == 502


def test_mounts_come_back_with_the_next_daemon_though_the_device_was_gone(
    node_folder: Path, upstream: BlobUpstream, tree: Path, reference: str
) -> None:
    with running_daemon(settings_in(node_folder), upstream) as client:
        client.mount(reference, node_folder / "mnt")
        client.mount(reference, node_folder / "gone")
    unmount(node_folder / "gone", detach=True)
    with running_daemon(settings_in(node_folder), upstream) as client:
        assert not client.status().resumed
        assert_same(node_folder / "mnt", tree)
        assert_same(node_folder / "gone", tree)


def test_one_broken_image_does_not_keep_the_others_away(
    node_folder: Path, upstream: BlobUpstream, tree: Path, reference: str
) -> None:
    upstream.add("registry.test/other:v1", erofs_image(node_folder / "other", megabytes=1, seed=7))
    with running_daemon(settings_in(node_folder), upstream) as client:
        client.mount(reference, node_folder / "mnt")
        broken = client.mount("registry.test/other:v1", node_folder / "broken")
    name = broken.image.removeprefix("sha256:")
    (node_folder / "state" / "images" / name / "index.json").write_text("{")
    with running_daemon(settings_in(node_folder), upstream) as client:
        assert list(client.status().broken) == [str(node_folder / "broken")]
        assert_same(node_folder / "mnt", tree)
        client.mount("registry.test/other:v1", node_folder / "broken")
        assert client.status().broken == {}


def test_a_second_daemon_is_kept_out_of_the_first_ones_folders(node_folder: Path, upstream: BlobUpstream) -> None:
    with running_daemon(settings_in(node_folder), upstream) as client:
        with (
            pytest.raises(StateInUseError, match="another daemon"),
            running_daemon(settings_in(node_folder), upstream),
        ):
            pytest.fail("it has started")
        assert client.ready()


def test_more_pods_to_come_have_the_start_up_fetched_ahead(
    node_folder: Path, upstream: BlobUpstream, nats_server: NatsServer
) -> None:
    image = erofs_image(node_folder / "hot", seed=3, prefetch=(0, 2))
    upstream.add("registry.test/hot:v1", image)

    async def decide() -> None:
        bus = await Bus.connect(nats_server.url, name="test")
        assert await bus.wait_connected(10)
        decision = ScaleDecision(model="m", sent_at=1.0, replicas=2, reason="demand", image="registry.test/hot:v1")
        bus.publish(scale_subject("m"), decision)
        await bus.close()

    def fetched() -> bool:
        asyncio.run(decide())  # again and again, since the daemon may not listen yet
        return any(image.held_sectors == 2 for image in client.status().images)

    with running_daemon(settings_in(node_folder, forecast=True, nats_url=nats_server.url), upstream) as client:
        wait_until(fetched)
