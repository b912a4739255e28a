"""What an image runs, as its configuration and the command line say."""

from __future__ import annotations

import json

import pytest

from copydesk.imagefetcher.registry.errors import AnswerError
from copydesk.imagefetcher.tracing.bundle import runtime_spec
from copydesk.imagefetcher.tracing.errors import CommandNotFoundError, UserNotFoundError
from copydesk.imagefetcher.tracing.process import (
    DEFAULT_PATH,
    Process,
    RunConfig,
    decode_run_config,
    follow,
    process_of,
)
from copydesk.imagefetcher.tree import Node
from tests.fixtures.flat_image import flat_image
from tests.fixtures.oci_image import directory, file, layer, symlink

ARCHIVE = layer(
    directory("usr/bin"),
    file("usr/bin/tool", b"#!", mode=0o755),
    file("usr/bin/notes", b"text"),
    symlink("bin", "usr/bin"),
    symlink("usr/bin/alias", "../../bin/tool"),
    symlink("usr/bin/absolute", "/usr/bin/tool"),
    symlink("usr/bin/broken", "nowhere"),
    symlink("usr/bin/circle", "circle"),
    directory("srv"),
    file("srv/run", b"#!", mode=0o755),
)
FILES = {
    "etc/passwd": b"root:x:0:0::/root:/bin/sh\napp:x:1000:1001::/home/app:/bin/sh\nbroken:x\n",
    "etc/group": b"app:x:1001:\naudio:x:29:app,other\nwheel:x:10:other\n",
}


@pytest.fixture(scope="module")
def root() -> Node:
    with flat_image([ARCHIVE]) as image:
        return image.root


def read_file(path: str) -> bytes:
    return FILES.get(path, b"")


def made(root: Node, config: RunConfig, *command: str, **environment: str) -> Process:
    return process_of(config, command, environment, root, read_file)


def test_without_a_command_the_image_runs_its_entrypoint_and_arguments(root: Node) -> None:
    config = RunConfig(entrypoint=("tool",), cmd=("--serve",), env=("A=1=2", "B=3"), working_dir="/srv")
    process = made(root, config, B="4")
    assert process.arguments == ("tool", "--serve")
    assert process.environment == {"PATH": DEFAULT_PATH, "A": "1=2", "B": "4", "HOME": "/root"}
    assert (process.directory, process.uid, process.gid) == ("/srv", 0, 0)


def test_a_command_takes_the_place_of_both(root: Node) -> None:
    config = RunConfig(entrypoint=("other",), cmd=("--serve",))
    assert made(root, config, "/usr/bin/tool", "-v").arguments == ("/usr/bin/tool", "-v")


@pytest.mark.parametrize(
    "command", ["tool", "alias", "absolute", "/bin/alias", "/usr/bin/../../bin/tool", "./run"]
)
def test_a_command_is_found_as_the_container_will_find_it(root: Node, command: str) -> None:
    assert made(root, RunConfig(working_dir="/srv"), command).arguments == (command,)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("absent", "is not in the image, neither in /usr/local/sbin nor"),
        ("/usr/bin/absent", "is not in the image"),
        ("broken", "is not in the image"),
        ("circle", "is not in the image"),
        ("notes", "is not in the image"),
        ("/usr/bin/notes", "is not executable"),
        ("/usr/bin", "is not executable"),
        ("./run", "is not in the image"),
    ],
)
def test_a_command_that_cannot_be_run_is_named(root: Node, command: str, said: str) -> None:
    with pytest.raises(CommandNotFoundError, match=said) as caught:
        made(root, RunConfig(), command)
    assert caught.value.command == command


def test_an_image_without_a_command_needs_one(root: Node) -> None:
    with pytest.raises(CommandNotFoundError, match="names none of its own"):
        made(root, RunConfig())


@pytest.mark.parametrize(
    ("user", "ids"),
    [
        ("", (0, 0, ())),
        ("app", (1000, 1001, (29,))),
        ("1000", (1000, 1001, (29,))),
        ("4242", (4242, 0, ())),
        ("app:wheel", (1000, 10, ())),
        ("app:7", (1000, 7, ())),
    ],
)
def test_users_are_those_of_the_image(root: Node, user: str, ids: tuple[int, int, tuple[int, ...]]) -> None:
    process = made(root, RunConfig(user=user), "tool")
    assert (process.uid, process.gid, process.groups) == ids


@pytest.mark.parametrize("user", ["nobody", "app:nobody"])
def test_a_user_that_the_image_does_not_know_is_named(root: Node, user: str) -> None:
    with pytest.raises(UserNotFoundError, match="'nobody'"):
        made(root, RunConfig(user=user), "tool")


def test_no_path_leads_out_of_the_image(root: Node) -> None:
    assert follow(root, "/../../usr/bin/tool") is follow(root, "usr/bin/tool")


def test_a_configuration_is_read_as_docker_and_others_write_it() -> None:
    raw = json.dumps({"config": {"Env": None, "Cmd": ["sh"], "User": "app", "WorkingDir": "", "Labels": {}}})
    assert decode_run_config("host", raw.encode()) == RunConfig(cmd=("sh",), user="app")
    assert decode_run_config("host", b'{"os": "linux"}') == RunConfig()
    with pytest.raises(AnswerError, match="cannot be run"):
        decode_run_config("host", b'{"config": {"Cmd": "sh"}}')


def test_a_container_has_the_hosts_network_and_no_more_rights_than_others() -> None:
    process = Process(("tool",), {"A": "1"}, "/srv", 1000, 1001, (29,))
    spec = runtime_spec(process, "/root", ["/etc/hosts"])
    assert spec["process"]["user"] == {"uid": 1000, "gid": 1001, "additionalGids": [29]}
    assert spec["process"]["env"] == ["A=1"]
    assert set(spec["process"]["capabilities"]) == {"bounding"}
    assert (
        "CAP_SYS_ADMIN" not in runtime_spec(Process(("tool",), {}), "/root")["process"]["capabilities"]["bounding"]
    )
    assert "network" not in [namespace["type"] for namespace in spec["linux"]["namespaces"]]
    assert spec["mounts"][-1]["source"] == "/etc/hosts"
