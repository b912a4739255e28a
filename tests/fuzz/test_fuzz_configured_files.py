"""Files that parts start with or print again: endpoints, a log-in, how an image runs, answers, a saved run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.cli.commands.bench import show_saved
from copydesk.cli.onboarding.answers import RememberingSubject
from copydesk.eds.endpoint_file import read_endpoints
from copydesk.imagefetcher.registry.credentials import CredentialStore
from copydesk.imagefetcher.tracing.process import decode_run_config
from copydesk.inference.engine.vllm.options import read_config
from tests.fuzz.corpus import cases, effort
from tests.fuzz.file_readers import check_readers
from tests.fuzz.hostile_bytes import damaged


def look_up(path: Path) -> object:
    return asyncio.run(CredentialStore(path.parent).lookup("registry.test"))


def remember(path: Path) -> object:
    def load() -> object:
        raise AssertionError("no answer was asked for")

    return RememberingSubject("m", {}, path, load).known  # type: ignore[arg-type]


READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "endpoints as JSON": ("e.json", read_endpoints),
    "endpoints as YAML": ("e.yaml", read_endpoints),
    "log-in": ("config.json", look_up),
    "settings for vLLM": ("config.json", lambda path: read_config(path.parent)),
    "how an image is run": ("run.json", lambda path: decode_run_config("registry", path.read_bytes())),
    "answers": ("answers.jsonl", remember),
    "saved run": ("saved.json", show_saved),
}
WHOLE = [
    b'{"m": [{"address": "127.0.0.1:80", "capacity": 4, "state": "ready"}]}',
    b"m:\n  - {address: 127.0.0.1:80, zone: a}\n  - &a {address: h:1}\n  - *a\n",
    b'{"auths": {"registry.test": {"auth": "YTpi"}, "https://registry.test/v1/": {"username": "a"}}}',
    b'{"config": {"Env": ["A=b"], "Cmd": ["sh"], "User": "1:1", "WorkingDir": "/"}}',
    b'{"source": "He go.", "text": "He goes.", "outcome": "corrected"}\n',
]


@effort(60)
@given(content=damaged(st.sampled_from(WHOLE), most=3) | st.binary(max_size=40))
def test_a_file_is_taken_or_refused_with_a_typed_error(tmp_path: Path, content: bytes) -> None:
    check_readers(READERS.values(), tmp_path, content)


@pytest.mark.parametrize(("name", "content"), cases("configured_files"))
def test_configured_files_that_were_kept(tmp_path: Path, name: str, content: bytes) -> None:
    check_readers(READERS.values(), tmp_path, content)
