"""Each `curl` of the README and of the page about the API works as printed, and answers what stands below it.

In what is printed, … stands for anything: in a text, as a text, and as the name of a field for any others.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fixtures.fleet import Fleet, running_fleet

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/api.md")
PRINTED_URL = "http://127.0.0.1:8080"
ELLIPSIS = "…"
OF_THE_MOMENT = ("latency_ms", "created")
"""Fields with another number each time."""

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Printed:
    """A command, and what is printed as its answer; nothing where the page only says what it is."""

    command: str
    answer: str


def blocks(page: str) -> list[tuple[str, str]]:
    """The fenced blocks of a page, kind and content; an empty one stands where there is text between two."""
    found: list[tuple[str, str]] = []
    end = 0
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        if page[end : match.start()].strip():
            found.append(("", ""))
        found.append((match[1], match[2]))
        end = match.end()
    return [*found, ("", "")]


def commands(console: str) -> Iterator[Printed]:
    """The commands of a block in which each begins behind a dollar, with what follows each."""
    for part in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        size = next(size for size in range(1, len(lines) + 1) if is_whole(lines[:size]))
        yield Printed("\n".join(lines[:size]), "\n".join(lines[size:]))


def is_whole(lines: list[str]) -> bool:
    try:
        shlex.split("\n".join(lines))
    except ValueError:
        return False
    return not lines[-1].endswith("\\")


def printed(page: str) -> Iterator[Printed]:
    """The calls of `curl` on a page."""
    found = blocks((ROOT / page).read_text())
    for (kind, content), (next_kind, next_content) in itertools.pairwise(found):
        if kind != "console":
            continue
        calls = [call for call in commands(content) if call.command.startswith("curl ")]
        if calls and next_kind == "json":
            calls[-1] = Printed(calls[-1].command, next_content)
        yield from calls


CALLS = [
    pytest.param(call, id=f"{page}-{number}") for page in PAGES for number, call in enumerate(printed(page), 1)
]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A fleet with the default model, as `make run` starts it."""
    if shutil.which("curl") is None:
        message = "no curl: apt-get install curl"
        if os.environ.get("COPYDESK_REQUIRE_ALL") == "1":
            pytest.fail(message)
        pytest.skip(message)
    with running_fleet(tmp_path_factory.mktemp("printed")) as fleet:
        yield fleet


def test_the_pages_print_calls_of_every_endpoint() -> None:
    text = "\n".join(call.command for page in PAGES for call in printed(page))
    paths = ("/v1/correct", "/v1/completions", "/v1/chat/completions", "/v1/models", "/v1/models/gec-en")
    more = ("/v2/check", "/v2/languages", "/v2/info", "/v2/maxtextlength", "/v2/healthcheck")
    rest = ("/v1/fleet", "/v1/fleet/history", "/healthz", "/readyz", "/metrics")
    assert [path for path in (*paths, *more, *rest) if not re.search(rf"{path}[ '?\n]", text)] == []


@pytest.mark.parametrize("call", CALLS)
def test_a_printed_call_answers_what_is_printed(fleet: Fleet, call: Printed) -> None:
    command = call.command.replace(PRINTED_URL, fleet.url)
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout
    if not call.answer:
        assert '"error":' not in done.stdout
        assert not done.stdout.startswith("Error:")
    elif call.answer.startswith("{"):
        assert differences(json.loads(call.answer), json.loads(done.stdout)) == []
    else:
        assert done.stdout.strip() == call.answer.strip()


def differences(shown: object, found: object, at: str = "$") -> list[str]:
    """Where an answer is not what is shown."""
    if isinstance(shown, dict) and isinstance(found, dict):
        if ELLIPSIS not in shown and list(shown) != list(found):
            return [f"{at} has the fields {list(found)}"]
        names = [name for name in shown if name != ELLIPSIS]
        return [one for name in names for one in differences(shown[name], found.get(name), f"{at}.{name}")]
    if isinstance(shown, list) and isinstance(found, list) and len(shown) == len(found):
        pairs = zip(shown, found, strict=True)
        return [one for place, (a, b) in enumerate(pairs) for one in differences(a, b, f"{at}[{place}]")]
    return [] if is_same(shown, found, at) else [f"{at} is {found!r}"]


def is_same(shown: object, found: object, at: str) -> bool:
    if isinstance(shown, str) and isinstance(found, str):
        return re.fullmatch(".*".join(map(re.escape, shown.split(ELLIPSIS))), found) is not None
    if at.endswith(OF_THE_MOMENT):
        return type(shown) is type(found)
    return shown == found
