"""A model profile that somebody else wrote, which pods, gateways and the autoscaler read when they start."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.common.profile import ProfileError, read_profile
from tests.fuzz.corpus import cases, effort
from tests.fuzz.hostile_bytes import damaged

RIGHT = b"""version: 1
model: {name: gec-en, directory: /models/gec-en, digest: 3c0fc634, architecture: LlamaForCausalLM}
precision: {dtype: int8}
prompt: {name: gec-en}
created_at: 2026-01-01T00:00:00Z
tool: copydesk 0.1.0
"""
lines = st.lists(
    st.sampled_from(
        [*RIGHT.splitlines(), b"a: &a [*a]", b"? [a]", b"version: .nan", b"\t", b"- x", b"!!python/name:os"]
    ),
    max_size=7,
).map(lambda found: b"\n".join(found) + b"\n")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "profile.yaml"


def check_profile(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with contextlib.suppress(ProfileError):
        assert read_profile(path).version == 1


@effort(100)
@given(content=damaged(st.just(RIGHT) | lines, most=3) | st.binary(max_size=40))
def test_a_profile_is_read_or_refused_with_a_typed_error(path: Path, content: bytes) -> None:
    check_profile(path, content)


@pytest.mark.parametrize(("name", "content"), cases("profiles"))
def test_profiles_that_were_kept(path: Path, name: str, content: bytes) -> None:
    check_profile(path, content)
