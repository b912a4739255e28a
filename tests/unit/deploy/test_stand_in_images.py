"""scripts/stand-in-images.sh leaves no half-made image behind, however it ends; tools are stand-ins too."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "stand-in-images.sh"
LIMIT_S = 60.0
TOOLS = {
    "docker": '[ "$1" = info ]',  # an engine that has no image and reaches no registry
    "id": "echo 0",
    "debootstrap": """for root; do :; done
mkdir "$root/etc"
echo there >"$HERE/told"
read -r code <"$HERE/end"
exit "$code"
""",
}


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with the tools, and the pipes by which debootstrap tells that it is at work, and is ended."""
    for name, body in TOOLS.items():
        tool = tmp_path / name
        tool.write_text(f"#!/bin/sh\n{body}\n")
        tool.chmod(0o755)
    for name in ("told", "end"):
        os.mkfifo(tmp_path / name)
    return tmp_path


@contextmanager
def making(here: Path) -> Iterator[subprocess.Popen[str]]:
    """The script, in a group of its own, while debootstrap is at work."""
    env = {
        **os.environ,
        "HERE": str(here),
        "COPYDESK_CACHE_DIR": str(here),
        "PATH": f"{here}:{os.environ['PATH']}",
    }
    with subprocess.Popen([SCRIPT], env=env, stderr=subprocess.PIPE, text=True, start_new_session=True) as script:
        try:
            assert (here / "told").read_text() == "there\n"
            yield script
            script.communicate(timeout=LIMIT_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(script.pid, signal.SIGKILL)


def roots(here: Path) -> list[Path]:
    return list((here / "stand-ins").glob("root.*"))


def end(here: Path, code: int) -> None:
    (here / "end").write_text(f"{code}\n")


def test_what_debootstrap_has_begun_goes_when_it_fails(here: Path) -> None:
    with making(here) as script:
        end(here, 1)
    assert script.returncode == 1
    assert roots(here) == []


def test_it_goes_when_it_is_told_to_end(here: Path) -> None:
    with making(here) as script:
        os.killpg(script.pid, signal.SIGTERM)
    assert script.returncode == -signal.SIGTERM
    assert roots(here) == []


def test_what_one_that_was_killed_left_goes_with_the_next_run(here: Path) -> None:
    with making(here) as script:
        os.killpg(script.pid, signal.SIGKILL)
    (left,) = roots(here)
    with making(here):
        assert not left.exists()
        end(here, 1)
    assert roots(here) == []
