"""The file of API keys, and who gets in."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from copydesk.gateway.faults import ApiError
from copydesk.gateway.keys import KeyRing, KeysFileError


def line(name: str, key: str) -> str:
    return f"{name}:{hashlib.sha256(key.encode()).hexdigest()}\n"


def test_a_known_key_is_let_in_by_its_name(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# who may\n\n" + line("web", "k1") + line("batch", "k2"))
    ring = KeyRing.load(file)
    assert ring.check("Bearer k1") == "web"
    assert ring.check("bearer  k2 ") == "batch"


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Basic k1", "k1", "Bearer k3", "Bearer \udcff"])
def test_anything_else_is_refused(header: str | None) -> None:
    ring = KeyRing((("web", hashlib.sha256(b"k1").digest()),))
    with pytest.raises(ApiError) as caught:
        ring.check(header)
    assert (caught.value.status, caught.value.code) == (401, "invalid_api_key")


@pytest.mark.parametrize("content", ["", "# nothing\n", "web:k1\n", "web\n", ":" + "0" * 64, b"\xff\xfe"])
def test_a_file_that_holds_no_keys_is_an_error_that_names_it(tmp_path: Path, content: str | bytes) -> None:
    file = tmp_path / "keys"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(KeysFileError, match="keys"):
        KeyRing.load(file)


def test_a_missing_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(KeysFileError, match="nowhere"):
        KeyRing.load(tmp_path / "nowhere")
