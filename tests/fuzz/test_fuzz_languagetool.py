"""Fields of LanguageTool's API as an enemy would write them: forms, and the JSON of `data`."""

from __future__ import annotations

import json
from urllib.parse import quote_from_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.gateway.faults import ApiError
from copydesk.gateway.languagetool.requests import MAX_FIELDS, parse_check, parse_fields
from copydesk.text import apply, edits
from tests.fuzz.corpus import cases, effort
from tests.fuzz.hostile_bytes import damaged

LIMIT = 200
NAMES = [
    "text",
    "data",
    "language",
    "enabledRules",
    "enabledOnly",
    "mode",
    "level",
    "preferredVariants",
    "enabled",
]

texts = st.text(max_size=12) | st.sampled_from(["She go out.", "<b>", "\n", "", "😀", "\0", "\ud800", " " * 300])
parts = st.dictionaries(st.sampled_from(["text", "markup", "interpretAs", "x"]), texts | st.none(), max_size=3)
odd = st.none() | st.integers() | st.floats() | st.lists(st.integers(), max_size=2)
datas = st.dictionaries(
    st.sampled_from(["text", "annotation", "x"]), st.lists(parts, max_size=5) | texts | odd, max_size=2
)
values = st.one_of(
    damaged(datas.map(lambda data: json.dumps(data).encode())),
    texts.map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.sampled_from([b"en-US", b"auto", b"true", b"all", b"textLevelOnly", b"picky"]),
    st.binary(max_size=12),
)
fields = st.lists(st.tuples(st.sampled_from(NAMES), values), max_size=5).map(
    lambda found: "&".join(f"{name}={quote_from_bytes(value)}" for name, value in found).encode()
)
right = st.builds(
    lambda data, more: (
        b"language=en-US&data=" + quote_from_bytes(json.dumps(data).encode()).encode() + b"&" + more
    ),
    st.fixed_dictionaries({"annotation": st.lists(parts, max_size=6)}),
    fields,
)


def check_form(body: bytes, query: bytes) -> None:
    """It is refused with a typed error, or it is a check within limits, whose edits have a place in the whole."""
    check, status = None, 400
    try:
        found = parse_fields(body, query)
        assert len(found) <= 2 * MAX_FIELDS
        check = parse_check(found, LIMIT)
    except ApiError as error:
        status = error.status
    assert 400 <= status < 500
    if check is None:
        return
    assert len(check.read) <= len(check.text.plain) <= LIMIT
    wanted = check.text.plain.replace("go", "goes").upper()
    placed = check.text.placed(edits(check.text.plain, wanted))
    apply(check.text.whole, placed)
    for start in range(len(check.text.plain)):
        first, last = check.text.span(start, start + 1)
        assert 0 <= first <= last <= len(check.text.whole)


@effort(150)
@given(body=damaged(fields | right, most=2) | st.binary(max_size=60), query=fields | st.just(b""))
def test_a_form_is_checked_or_refused_with_a_typed_error(body: bytes, query: bytes) -> None:
    check_form(body, query)


@pytest.mark.parametrize("body", [pytest.param(data, id=name) for name, data in cases("languagetool")])
def test_a_kept_form_is_no_trouble(body: bytes) -> None:
    check_form(body, b"")
    check_form(b"", body)
