"""A directory that somebody made to hurt, as `copydesk model check` looks at it: it reports, and never raises."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.inference.inspection import inspect_model
from tests.fixtures.tiny_model import write_tiny_model
from tests.fuzz.corpus import cases, effort
from tests.fuzz.hostile_bytes import damaged

NAMES = ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors.index.json")
values: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.floats(),
    st.integers(-(1 << 70), 1 << 70),
    st.text(max_size=4),
    st.sampled_from(
        [[], {}, [[]], [{}], {"weight_map": {"a": "../../x"}}, {"type": "BPE"}, "{% for a in b %}", "\ud800"]
    ),
)
paths = st.lists(st.integers(0, 50), min_size=1, max_size=4)


def changed(whole: Any, path: list[int], value: Any) -> Any:
    """`whole` with `value` at a place that the numbers of `path` lead to."""
    if not path or not isinstance(whole, (dict, list)) or not whole:
        return value
    keys: list[Any] = list(whole) if isinstance(whole, dict) else list(range(len(whole)))
    key = keys[path[0] % len(keys)]
    copy: Any = whole.copy()
    copy[key] = changed(whole[key], path[1:], value)
    return copy


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path / "model", layers=1)


def check_directory(model: Path, name: str, content: bytes) -> None:
    path = model / name
    before = path.read_bytes() if path.exists() else None
    path.write_bytes(content)
    try:
        report = inspect_model(model)
        assert report.directory == str(model)
    finally:
        if before is None:
            path.unlink()
        else:
            path.write_bytes(before)


@effort(40)
@given(data=st.data(), name=st.sampled_from(NAMES))
def test_a_directory_is_reported_on_whatever_its_files_say(model: Path, data: st.DataObject, name: str) -> None:
    whole: Any = json.loads((model / name).read_bytes()) if (model / name).exists() else {"weight_map": {"a": "b"}}
    for path, value in data.draw(st.lists(st.tuples(paths, values), min_size=1, max_size=3)):
        whole = changed(whole, path, value)
    check_directory(model, name, data.draw(damaged(st.just(json.dumps(whole).encode()), most=1)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("content", [pytest.param(data, id=kept) for kept, data in cases("model_config")])
def test_directories_with_a_file_that_was_kept(model: Path, name: str, content: bytes) -> None:
    check_directory(model, name, content)
