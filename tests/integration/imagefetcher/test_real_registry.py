"""The daemon as it is run, by `python -m copydesk.imagefetcher`, with a real docker-registry."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from copydesk.imagefetcher.control.client import DaemonError
from copydesk.imagefetcher.registry.credentials import CredentialStore
from copydesk.imagefetcher.registry.options import RegistryOptions
from tests.fixtures.docker_registry import PASSWORD, USER, DockerRegistry, docker_registry, password_registry
from tests.fixtures.image_daemon import running_holder
from tests.fixtures.oci_image import build, directory, file, hard_link, layer, push, push_index, symlink
from tests.fixtures.real_daemon import convert, daemon_process

__all__ = ["docker_registry", "password_registry"]

LARGE = random.Random(1).randbytes(9 << 20)
IMAGE = build(
    [
        layer(
            directory("opt"),
            file("opt/large.bin", LARGE),
            file("opt/gone", b"x"),
            file("opt/tool", b"#!", mode=0o755),
        ),
        layer(
            file("opt/.wh.gone"),
            file("opt/small", b"small"),
            symlink("opt/link", "small"),
            hard_link("opt/hard", "opt/small"),
        ),
    ]
)


def assert_is_the_image(target: Path) -> None:
    assert {path.name for path in (target / "opt").iterdir()} == {"large.bin", "tool", "small", "link", "hard"}
    assert (target / "opt/large.bin").read_bytes() == LARGE
    assert (target / "opt/link").read_text() == "small"
    assert (target / "opt/hard").stat().st_ino == (target / "opt/small").stat().st_ino
    assert (target / "opt/tool").stat().st_mode & 0o777 == 0o755


def test_a_converted_image_is_served_and_outlives_daemon_and_registry(
    node_folder: Path, docker_registry: DockerRegistry
) -> None:
    reference = docker_registry.reference("team/app:v1")
    push(docker_registry.host, "team/app", "v1", IMAGE)
    asyncio.run(convert(reference, RegistryOptions(plain_http=True)))
    with running_holder(node_folder):
        with daemon_process(node_folder) as client:
            assert client.mount(reference, node_folder / "mnt").original == IMAGE.digest
            assert_is_the_image(node_folder / "mnt")
        docker_registry.stop()
        with daemon_process(node_folder) as client:
            status = client.status()
            assert status.resumed
            assert status.images[0].held_sectors == status.images[0].sectors
            assert_is_the_image(node_folder / "mnt")
            client.mount(reference, node_folder / "mnt2")
            client.unmount(node_folder / "mnt2")
            client.unmount(node_folder / "mnt")


def test_what_was_not_converted_is_said_to_be_so(node_folder: Path, docker_registry: DockerRegistry) -> None:
    push(docker_registry.host, "team/app", "v1", IMAGE)
    with daemon_process(node_folder) as client:
        with pytest.raises(DaemonError, match="has not been converted") as caught:
            client.mount(docker_registry.reference("team/app:v1"), node_folder / "mnt")
        assert caught.value.status == 404
        with pytest.raises(DaemonError) as caught:
            client.mount(docker_registry.reference("team/app:other"), node_folder / "mnt")
        assert caught.value.status == 502


def test_of_an_image_for_several_platforms_this_machine_s_is_mounted(
    node_folder: Path, docker_registry: DockerRegistry
) -> None:
    other = build([layer(file("other", b"arm"))], architecture="arm64")
    push_index(docker_registry.host, "team/app", "v1", {"arm64": other, "amd64": IMAGE})
    reference = docker_registry.reference("team/app:v1")
    asyncio.run(convert(reference, RegistryOptions(plain_http=True)))
    with daemon_process(node_folder) as client:
        client.mount(reference, node_folder / "mnt")
        assert_is_the_image(node_folder / "mnt")
        client.unmount(node_folder / "mnt")


def test_a_registry_with_passwords_is_read_with_those_of_docker_login(
    node_folder: Path, password_registry: DockerRegistry
) -> None:
    reference = password_registry.reference("team/app:v1")
    login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    (node_folder / "config.json").write_text(json.dumps({"auths": {password_registry.host: {"auth": login}}}))
    push(password_registry.host, "team/app", "v1", IMAGE, auth=(USER, PASSWORD))
    asyncio.run(convert(reference, RegistryOptions(credentials=CredentialStore(node_folder), plain_http=True)))
    with daemon_process(node_folder, DOCKER_CONFIG=str(node_folder)) as client:
        client.mount(reference, node_folder / "mnt")
        assert_is_the_image(node_folder / "mnt")
        client.unmount(node_folder / "mnt")
    with daemon_process(
        node_folder, DOCKER_CONFIG=str(node_folder / "nobody"), STATE_DIR=str(node_folder / "s2")
    ) as client:
        with pytest.raises(DaemonError, match="password") as caught:
            client.mount(reference, node_folder / "mnt2")
        assert caught.value.status == 502
        assert "docker login" in caught.value.hint


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("PEER_PORT", "7070", "PEER_TOKEN"),
        ("MIRRORS", "mirror.example", "no URL"),
        ("CACHE_LIMIT_MB", "1", "greater than or equal to 16"),
    ],
)
def test_a_bad_setting_is_named_at_the_start(tmp_path: Path, key: str, value: str, said: str) -> None:
    environment = {**os.environ, f"COPYDESK_IMAGEFETCHER_{key}": value}
    done = subprocess.run(
        [sys.executable, "-m", "copydesk.imagefetcher"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert f"COPYDESK_IMAGEFETCHER_{key}" in done.stderr
    assert said in done.stderr
