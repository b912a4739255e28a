"""Expressions that come with a checkpoint mean what they mean in Python, and none takes long."""

from __future__ import annotations

import re
import warnings
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from copydesk.inference.engine.native.errors import UnsupportedModelError
from copydesk.inference.quantisation.expression import Expression
from copydesk.inference.quantisation.scheme import (
    Quantisation,
    Scheme,
    WeightScale,
    parse_quantisation,
    quantisation_config,
)

ATOMS = st.sampled_from(["a", "b", ".", "\\.", "\\d", "\\w", "[ab]", "[^a]", "[a-c1]", "^", "$", "\\S", "[^\\d]"])


def _wider(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    repeats = st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "*?", "{0,2}?"])
    return st.one_of(
        st.lists(inner, max_size=3).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda ways: f"({'|'.join(ways)})"),
        st.tuples(inner, repeats).map(lambda parts: f"(?:{parts[0]}){parts[1]}"),
        inner.map(lambda text: f"(?!{text})"),
        inner.map(lambda text: f"(?={text})"),
    )


@given(st.recursive(ATOMS, _wider, max_leaves=8), st.text("ab1.\n", max_size=6))
@example("re", "model")
@example("", "")
def test_an_expression_matches_what_python_matches(text: str, name: str) -> None:
    assert Expression(text).matches(name) is (re.match(text, name) is not None)


@pytest.mark.parametrize(
    "text",
    [
        "(.*)*x",
        "(.+.+)+x",
        ".*.*.*.*.*.*.*.*.*.*x",
        f"{'(.|.)' * 35}x",
        "((((.{0,500}){0,500}){0,500}){0,500})x",
        "(?:(?:(?:a{1000}){1000}){1000}){1000}",
    ],
)
def test_an_expression_that_would_take_python_for_ever_is_matched(text: str) -> None:
    assert not Expression(text).matches("model.layers.12.self_attn.q_proj")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(", "missing"),
        ("(.)\\1", "groupref is not served"),
        ("(?<=a)b", "assert is not served"),
        ("(?i)A", "flags are not served"),
        ("(?i:A)", "subpattern is not served"),
        ("(" * 150 + ")" * 150, "longer than 200 characters"),
        ("a{99999999999999999999}", "too large"),
    ],
)
def test_what_is_not_matched_is_refused_with_the_key(text: str, reason: str) -> None:
    quantisation = Quantisation(Scheme.FP8, WeightScale.CHANNEL, (f"re:{text}",))
    with pytest.raises(UnsupportedModelError, match=reason) as error:
        parse_quantisation({"quantization_config": quantisation_config(quantisation)})
    assert error.value.key == "quantization_config.ignore"


def test_what_later_versions_may_read_otherwise_is_no_noise() -> None:
    with warnings.catch_warnings(action="error"):
        assert Expression("[[a]").matches("[")


def test_so_many_expressions_are_refused() -> None:
    config: dict[str, Any] = quantisation_config(Quantisation(Scheme.FP8, WeightScale.CHANNEL, ("re:a",) * 101))
    with pytest.raises(UnsupportedModelError, match="100 at the most"):
        parse_quantisation({"quantization_config": config})
