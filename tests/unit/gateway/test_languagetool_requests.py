"""From the fields of a request to a check."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.gateway.faults import ApiError
from copydesk.gateway.languagetool.requests import MAX_FIELDS, Check, parse_check, parse_fields
from copydesk.gateway.languagetool.rules import Selection
from copydesk.gateway.languagetool.schemas import Annotation, Data

unicode_text = st.text(max_size=60)


def encoded(value: Data) -> str:
    return msgspec.json.encode(value).decode()


def check(**fields: str) -> Check:
    return parse_check({"language": "en-US", **fields}, 100)


def data(*annotation: dict[str, Any]) -> str:
    return json.dumps({"annotation": list(annotation)})


@given(st.dictionaries(unicode_text, unicode_text, max_size=8))
def test_fields_of_a_form_come_back_as_they_were(fields: dict[str, str]) -> None:
    assert parse_fields(urlencode(fields).encode(), b"") == fields


@given(unicode_text)
def test_a_text_is_taken_as_it_is(text: str) -> None:
    plain = text.replace("\0", "")
    fields = parse_fields(urlencode({"text": plain, "language": "en"}).encode(), b"")
    found = parse_check(fields, 100)
    assert found.text.whole == found.text.plain == found.read == plain


optional = st.none() | unicode_text
documents = st.builds(
    Data, optional, st.none() | st.lists(st.builds(Annotation, optional, optional, optional), max_size=4)
).map(encoded)
names = st.sampled_from(
    ["text", "data", "language", "level", "mode", "enabledOnly", "enabledRules", "preferredVariants"]
)
values = st.one_of(unicode_text, st.sampled_from(["auto", "en-GB", "true", "picky", "all", "A,B"]), documents)


def outcome(fields: dict[str, str]) -> Check | ApiError:
    try:
        return parse_check(fields, 100)
    except ApiError as error:
        return error


@given(st.dictionaries(names, values))
def test_any_fields_are_a_check_or_refused_for_a_reason(fields: dict[str, str]) -> None:
    found = outcome(fields)
    if isinstance(found, ApiError):
        assert found.status in (400, 413)
        assert found.message
    else:
        assert len(found.text.plain) <= 100


def test_fields_of_the_query_count_more_than_those_of_the_body() -> None:
    fields = parse_fields(b"text=a&language=en&text=b", b"language=en-GB&level=picky")
    assert fields == {"text": "b", "language": "en-GB", "level": "picky"}


def test_bytes_need_not_be_escaped() -> None:
    assert parse_fields("text=caf\u00e9 😀".encode(), b"") == {"text": "caf\u00e9 😀"}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"text=\xff", "invalid_unicode"),
        (b"text=%ff", "invalid_unicode"),
        (b"&".join(b"f%d=1" % index for index in range(MAX_FIELDS + 1)), "invalid_parameter"),
    ],
)
def test_a_form_that_is_none_is_refused(body: bytes, code: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse_fields(body, b"")
    assert (caught.value.status, caught.value.code) == (400, code)


def test_annotated_text_keeps_markup_apart() -> None:
    found = check(
        data=data({"text": "A "}, {"markup": "<p>", "interpretAs": "\n\n"}, {"text": "b"}, {"markup": "</p>"})
    )
    assert (found.text.whole, found.text.plain) == ("A <p>b</p>", "A \n\nb")


def test_data_may_be_plain_text_and_have_more_keys() -> None:
    assert check(data='{"text": "I go.", "metaData": {"Title": "x"}}').text.plain == "I go."


def test_absent_parts_of_an_annotation_may_be_null() -> None:
    found = check(data=data({"text": "A", "markup": None}, {"markup": "<b>", "interpretAs": None}))
    assert (found.text.whole, found.text.plain) == ("A<b>", "A")


def test_lists_may_have_spaces_and_empty_names() -> None:
    selection = check(text="a", disabledRules="A, B,,", disabledCategories="", enabledRules="C").selection
    assert selection.disabled_rules == {"A", "B"}
    assert selection.disabled_categories == set()
    assert selection.enabled_rules == {"C"}


@pytest.mark.parametrize("value", ["true", "yes"])
def test_enabled_only_is_said_in_two_ways(value: str) -> None:
    assert check(text="a", enabledOnly=value, enabledRules="A").selection.enabled_only


def test_rules_about_whole_texts_alone_leave_nothing_to_read() -> None:
    assert check(text="a b", mode="textLevelOnly").read == ""
    assert check(text="a b", mode="allButTextLevelOnly").read == "a b"


@pytest.mark.parametrize(
    ("fields", "status", "code", "said"),
    [
        ({}, 400, "missing_text", "Missing 'text' or 'data' parameter"),
        ({"text": "a", "data": "{}"}, 400, "ambiguous_text", "Set only 'text' or 'data' parameter, not both"),
        ({"data": "{"}, 400, "invalid_json", "Could not parse JSON"),
        ({"data": "[]"}, 400, "invalid_type", "Expected `object`"),
        ({"data": "[" * 20_000}, 400, "invalid_type", "JSON"),
        ({"data": '{"annotation": ' + "[" * 20_000}, 400, "invalid_type", "JSON"),
        ({"data": "{}"}, 400, "missing_text", "requires 'text' or 'annotation'"),
        ({"data": '{"text": "a", "annotation": []}'}, 400, "ambiguous_text", "not both"),
        ({"data": '{"text": "\\ud800"}'}, 400, "invalid_json", "JSON"),
        ({"data": data({"text": "a", "markup": "b"})}, 400, "invalid_annotation", "one of 'text' and 'markup'"),
        ({"data": data({"interpretAs": "b"})}, 400, "invalid_annotation", "one of 'text' and 'markup'"),
        ({"data": data({"text": "a", "interpretAs": "b"})}, 400, "invalid_annotation", "only 'markup' can"),
        ({"data": data({"text": 1})}, 400, "invalid_type", "Expected `str"),
        ({"text": "a", "language": ""}, 400, "missing_language", "Missing 'language' parameter"),
        ({"text": "a", "language": "xx"}, 400, "unknown_language", "'xx' is not a language code"),
        ({"text": "a", "level": "strict"}, 400, "invalid_parameter", "'default' or 'picky'"),
        ({"text": "a", "mode": "x"}, 400, "invalid_parameter", "'all', 'allButTextLevelOnly' or 'textLevelOnly'"),
        ({"text": "a", "enabled": "A"}, 400, "invalid_parameter", "it is 'enabledRules'"),
        ({"text": "a", "enabledOnly": "true"}, 400, "invalid_parameter", "You must specify enabled"),
        (
            {"text": "a", "enabledOnly": "true", "disabledRules": "A", "enabledRules": "B"},
            400,
            "invalid_parameter",
            "You cannot specify disabled",
        ),
        ({"text": "a\0"}, 400, "nul_character", "NUL"),
        (
            {"text": "a" * 101},
            413,
            "text_too_long",
            r"exceeds the limit of 100 characters \(it's 101 characters\)",
        ),
        ({"data": data({"markup": "", "interpretAs": "a" * 101})}, 413, "text_too_long", "exceeds the limit"),
    ],
)
def test_wrong_fields_are_refused_and_it_is_said_why(
    fields: dict[str, str], status: int, code: str, said: str
) -> None:
    with pytest.raises(ApiError, match=said) as caught:
        check(**fields)
    assert (caught.value.status, caught.value.code) == (status, code)


def test_a_language_must_be_given() -> None:
    with pytest.raises(ApiError, match="Missing 'language' parameter"):
        parse_check({"text": "a"}, 100)


def test_markup_does_not_count_as_text() -> None:
    assert check(data=data({"markup": "<b>" * 100}, {"text": "a" * 100})).text.plain == "a" * 100


def test_fields_of_no_effect_are_taken() -> None:
    found = check(
        text="a", motherTongue="de-DE", username="me", apiKey="k", level="picky", useragent="x", dicts="a", c="1"
    )
    assert (found.read, found.selection) == ("a", Selection())
