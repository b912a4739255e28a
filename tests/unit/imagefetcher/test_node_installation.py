"""What is written on a node, and what is left to a person."""

from __future__ import annotations

import configparser
import tomllib
from pathlib import Path

import pytest

from copydesk.imagefetcher.installation import (
    CONFIG,
    DAEMON_UNIT,
    DROP_IN,
    ENVIRONMENT,
    HOLDER_UNIT,
    Choice,
    InstallationError,
    missing_lines,
    plan,
    read,
    write,
)

CHOICE = Choice(Path("/opt/venv/bin/python"), Path("/var/lib/c"), Path("/run/c"))
OTHERS = """
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry.test/pause:3"
"""


def test_holder_and_daemon_are_units_apart_that_start_before_containerd() -> None:
    files = plan(CHOICE, None).files
    for unit, module in ((HOLDER_UNIT, "copydesk.imagefetcher.holder"), (DAEMON_UNIT, "copydesk.imagefetcher")):
        parsed = configparser.ConfigParser(strict=False, interpolation=None)
        parsed.read_string(files[unit])
        assert parsed["Service"]["ExecStart"] == f"/opt/venv/bin/python -m {module}"
        assert parsed["Service"]["Restart"] == "always"
        assert "containerd.service" in parsed["Unit"]["Before"]
        assert not {"bindsto", "partof", "requires"} & set(parsed["Unit"])
    assert "COPYDESK_IMAGEFETCHER_RUN_DIR=/run/c\n" in files[ENVIRONMENT]


def test_a_node_without_a_configuration_gets_one_that_lacks_nothing() -> None:
    planned = plan(CHOICE, None)
    assert missing_lines(tomllib.loads(planned.files[CONFIG])) == ""
    plugin = tomllib.loads(planned.files[DROP_IN])["proxy_plugins"]["copydesk"]
    assert plugin == {"type": "snapshot", "address": "/run/c/snapshotter.sock"}


def test_a_configuration_that_is_there_stays_and_what_it_lacks_is_said() -> None:
    planned = plan(CHOICE, OTHERS)
    assert CONFIG not in planned.files
    said = "\n".join(planned.left)
    assert 'snapshotter = "copydesk"' in said
    assert "imports" in said
    assert "systemctl restart containerd" in planned.left
    complete = plan(CHOICE, None).files[CONFIG]
    assert not any("stays as it is" in step for step in plan(CHOICE, complete).left)


@pytest.mark.parametrize("config", ["version = ", "", "version = 3\n"])
def test_a_configuration_that_is_not_understood_is_refused(config: str) -> None:
    with pytest.raises(InstallationError):
        plan(CHOICE, config)


def test_a_second_run_writes_nothing_and_settings_are_never_overwritten(tmp_path: Path) -> None:
    assert read(CONFIG, tmp_path) is None
    files = plan(CHOICE, None).files
    assert set(write(files, tmp_path)) == set(files)
    settings = tmp_path / ENVIRONMENT.relative_to("/")
    settings.write_text("COPYDESK_IMAGEFETCHER_CACHE_LIMIT_MB=100\n")
    assert write(files, tmp_path) == []
    assert settings.read_text() == "COPYDESK_IMAGEFETCHER_CACHE_LIMIT_MB=100\n"
    assert read(CONFIG, tmp_path) == files[CONFIG]


def test_settings_that_are_there_stay_and_what_they_lack_is_left_to_do() -> None:
    first = plan(CHOICE, None).files[ENVIRONMENT] + "COPYDESK_IMAGEFETCHER_BACKGROUND=false\n"
    assert not any(str(ENVIRONMENT) in step for step in plan(CHOICE, None, first).left)
    moved = Choice(CHOICE.python, CHOICE.state_dir, Path("/run/moved"))
    (step,) = (step for step in plan(moved, None, first).left if str(ENVIRONMENT) in step)
    assert step.splitlines()[1:] == ["COPYDESK_IMAGEFETCHER_RUN_DIR=/run/moved"]
