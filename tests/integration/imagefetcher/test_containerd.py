"""containerd pulls as a kubelet does and runs containers, with our snapshotter and nothing made up."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from copydesk.imagefetcher.device.mounts import mounted
from copydesk.imagefetcher.installation import CONFIG, DROP_IN
from copydesk.imagefetcher.paths import snapshotter_socket
from copydesk.imagefetcher.registry.options import RegistryOptions
from tests.fixtures.containerd import Containerd, running_containerd
from tests.fixtures.docker_registry import DockerRegistry, docker_registry, required_program
from tests.fixtures.image_daemon import running_holder
from tests.fixtures.oci_image import BuiltImage, build, digest_of, directory, file, layer, push
from tests.fixtures.real_daemon import RealDaemon, convert, daemon_process

__all__ = ["docker_registry"]

LARGE = random.Random(2).randbytes(9 << 20)
SUM = """
#include <cstdio>
int main(int count, char** names) {
  unsigned long sum = 0, length = 0;
  for (int at = 1; at < count; ++at) {
    if (names[at][0] == '-') {
      puts("ready");
      fflush(stdout);
      while (getchar() != EOF) {}
      continue;
    }
    FILE* file = fopen(names[at], "rb");
    if (!file) return 3;
    for (int byte; (byte = getc_unlocked(file)) != EOF; ++length) sum = sum * 31 + byte;
    fclose(file);
  }
  printf("%lu %lu\\n", length, sum & 0xffffffff);
}
"""


def expected_sum(content: bytes) -> str:
    total = 0
    for byte in content:
        total = (total * 31 + byte) & 0xFFFFFFFF
    return f"{len(content)} {total}\n"


LARGE_SUM = expected_sum(LARGE)


@pytest.fixture(scope="session")
def tool(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A program that needs no libraries, since the image has none."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("there is no g++")
    folder = tmp_path_factory.mktemp("tool")
    (folder / "sum.cpp").write_text(SUM)
    subprocess.run([compiler, "-static", "-O2", "-o", folder / "sum", folder / "sum.cpp"], check=True)
    return (folder / "sum").read_bytes()


@pytest.fixture
def app(tool: bytes) -> BuiltImage:
    return build(
        [
            layer(directory("bin"), file("bin/sum", tool, mode=0o755), file("old", b"x")),
            layer(directory("data"), file("data/large.bin", LARGE), file(".wh.old")),
            layer(file("data/small", b"small")),
        ]
    )


def push_converted(registry: DockerRegistry, name: str, image: BuiltImage) -> str:
    repository, _, tag = name.partition(":")
    push(registry.host, repository, tag, image)
    asyncio.run(convert(registry.reference(name), RegistryOptions(plain_http=True)))
    return registry.reference(name)


def layers_of(image: BuiltImage) -> set[str]:
    return {digest_of(blob) for blob in image.blobs[1:]}


def erofs_mounts(folder: Path) -> int:
    return sum(mount.kind == "erofs" and mount.target.startswith(str(folder)) for mount in mounted())


def test_a_pull_downloads_no_layer_and_the_container_reads_what_was_built(
    node_folder: Path, docker_registry: DockerRegistry, app: BuiltImage
) -> None:
    reference = push_converted(docker_registry, "team/app:v1", app)
    with (
        running_holder(node_folder),
        daemon_process(node_folder, SNAPSHOTTER="true") as client,
        running_containerd(node_folder / "cd", snapshotter_socket(node_folder / "run")) as containerd,
    ):
        containerd.pull(reference)
        assert not layers_of(app) & containerd.contents()
        assert client.status().images[0].held_sectors == 0
        assert containerd.run(reference, "one", "/bin/sum", "/data/large.bin") == LARGE_SUM
        assert containerd.run(reference, "two", "/bin/sum", "/data/small") == expected_sum(b"small")
        assert containerd.ctr(
            "run", "--rm", "--snapshotter", "copydesk", reference, "x", "/bin/sum", "/old"
        ).returncode
        containerd.remove(reference)
        assert erofs_mounts(node_folder) == 0
        containerd.pull(reference)
        assert containerd.run(reference, "three", "/bin/sum", "/data/large.bin") == LARGE_SUM
        containerd.remove(reference)


def test_an_image_that_was_not_converted_is_pulled_the_normal_way(
    node_folder: Path, docker_registry: DockerRegistry, app: BuiltImage
) -> None:
    push(docker_registry.host, "team/plain", "v1", app)
    reference = docker_registry.reference("team/plain:v1")
    with (
        daemon_process(node_folder, SNAPSHOTTER="true"),
        running_containerd(node_folder / "cd", snapshotter_socket(node_folder / "run")) as containerd,
    ):
        containerd.pull(reference)
        assert layers_of(app) <= containerd.contents()
        assert containerd.run(reference, "one", "/bin/sum", "/data/large.bin") == LARGE_SUM
        assert containerd.ctr(
            "run", "--rm", "--snapshotter", "copydesk", reference, "x", "/bin/sum", "/old"
        ).returncode
        containerd.remove(reference)


def test_images_outlive_restarts_of_containerd_the_daemon_and_the_registry(
    node_folder: Path, docker_registry: DockerRegistry, app: BuiltImage
) -> None:
    reference = push_converted(docker_registry, "team/app:v1", app)
    containerd = Containerd(node_folder / "cd", snapshotter_socket(node_folder / "run"))
    with running_holder(node_folder):
        try:
            with daemon_process(node_folder, SNAPSHOTTER="true"):
                containerd.start()
                containerd.pull(reference)
                assert containerd.run(reference, "one", "/bin/sum", "/data/large.bin") == LARGE_SUM
            containerd.stop()
            docker_registry.stop()
            with daemon_process(node_folder, SNAPSHOTTER="true"):
                containerd.start()
                assert containerd.run(reference, "two", "/bin/sum", "/data/large.bin") == LARGE_SUM
                containerd.remove(reference)
        finally:
            containerd.close()


def test_many_containers_of_one_image_at_once_fetch_each_sector_once(
    node_folder: Path, docker_registry: DockerRegistry, app: BuiltImage
) -> None:
    reference = push_converted(docker_registry, "team/app:v1", app)
    with (
        running_holder(node_folder),
        daemon_process(node_folder, SNAPSHOTTER="true") as client,
        running_containerd(node_folder / "cd", snapshotter_socket(node_folder / "run")) as containerd,
    ):
        containerd.pull(reference)
        with ThreadPoolExecutor(8) as pool:
            runs = [
                pool.submit(containerd.run, reference, f"c{number}", "/bin/sum", "/data/large.bin")
                for number in range(20)
            ]
            assert {run.result() for run in runs} == {LARGE_SUM}
        fetched = sum(
            float(line.split()[1])
            for line in client.metrics().splitlines()
            if line.startswith("copydesk_imagefetcher_fetched_sectors_total")
        )
        assert fetched == client.status().images[0].held_sectors
        containerd.remove(reference)


def test_an_image_that_was_not_converted_may_share_layers_with_one_that_was(
    node_folder: Path, docker_registry: DockerRegistry, app: BuiltImage, tool: bytes
) -> None:
    reference = push_converted(docker_registry, "team/app:v1", app)
    layers = [
        layer(directory("bin"), file("bin/sum", tool, mode=0o755), file("old", b"x")),
        layer(directory("data"), file("data/large.bin", LARGE), file(".wh.old")),
        layer(file("other", b"other")),
    ]
    push(docker_registry.host, "team/other", "v1", build(layers))
    other = docker_registry.reference("team/other:v1")
    with (
        daemon_process(node_folder, SNAPSHOTTER="true"),
        running_containerd(node_folder / "cd", snapshotter_socket(node_folder / "run")) as containerd,
    ):
        containerd.pull(reference)
        containerd.pull(other)
        containerd.remove(reference)
        assert erofs_mounts(node_folder) == 0
        assert containerd.run(other, "one", "/bin/sum", "/data/large.bin", "/other") == expected_sum(
            LARGE + b"other"
        )
        assert containerd.ctr(
            "run", "--rm", "--snapshotter", "copydesk", other, "two", "/bin/sum", "/old"
        ).returncode
        containerd.pull(reference)
        assert containerd.run(reference, "three", "/bin/sum", "/data/large.bin") == LARGE_SUM
        containerd.remove(reference)
        containerd.remove(other)


def test_a_running_container_does_not_notice_that_the_daemon_is_killed(
    node_folder: Path, docker_registry: DockerRegistry, app: BuiltImage
) -> None:
    reference = push_converted(docker_registry, "team/app:v1", app)
    daemon = RealDaemon(node_folder, SNAPSHOTTER="true")
    with running_holder(node_folder):
        try:
            daemon.start()
            with running_containerd(node_folder / "cd", snapshotter_socket(node_folder / "run")) as containerd:
                containerd.pull(reference)
                with containerd.popen(reference, "one", "/bin/sum", "-", "/data/large.bin") as container:
                    assert container.stdout is not None
                    assert container.stdin is not None
                    assert container.stdout.readline() == "ready\n"
                    daemon.kill()
                    container.stdin.close()  # now it reads what nobody has fetched yet
                    daemon.start()
                    assert container.stdout.read() == LARGE_SUM
                    assert container.wait(20) == 0
                containerd.remove(reference)
        finally:
            daemon.stop()


def test_what_is_installed_is_what_containerd_takes(tmp_path: Path) -> None:
    binary = required_program("containerd", "containerd")
    done = subprocess.run(
        [sys.executable, "-m", "copydesk.cli", "image", "install", "--root", str(tmp_path), "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(CONFIG) in json.loads(done.stdout)["written"]
    config = tmp_path / CONFIG.relative_to("/")
    config.write_text(
        config.read_text().replace(str(DROP_IN.parent), str(tmp_path / DROP_IN.parent.relative_to("/")))
    )
    dumped = subprocess.run(
        [binary, "--config", str(config), "config", "dump"], capture_output=True, text=True, check=True
    )
    effective = tomllib.loads(dumped.stdout)
    assert effective["proxy_plugins"]["copydesk"]["type"] == "snapshot"
    cri = effective["plugins"]["io.containerd.grpc.v1.cri"]["containerd"]
    assert cri["snapshotter"] == "copydesk"
    assert cri["disable_snapshot_annotations"] is False


def test_a_containerd_that_has_lost_its_memory_pulls_again(
    node_folder: Path, docker_registry: DockerRegistry, app: BuiltImage
) -> None:
    reference = push_converted(docker_registry, "team/app:v1", app)
    with daemon_process(node_folder, SNAPSHOTTER="true"):
        with running_containerd(node_folder / "cd", snapshotter_socket(node_folder / "run")) as containerd:
            containerd.pull(reference)
        with running_containerd(node_folder / "anew", snapshotter_socket(node_folder / "run")) as containerd:
            containerd.pull(reference)
            assert containerd.run(reference, "one", "/bin/sum", "/data/large.bin") == LARGE_SUM
            containerd.remove(reference)
        assert erofs_mounts(node_folder) == 0
