"""What a request may say, and the error that each wrong one gets."""

from __future__ import annotations

import contextlib
import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.common.rpc import Priority
from copydesk.gateway.faults import ApiError
from copydesk.gateway.limits import Limits
from copydesk.gateway.validation import Task, check_content_type, parse_deadline, parse_priority, parse_task

LIMITS = Limits(body_bytes=10_000, characters=100, texts=4, max_deadline_ms=5_000)


def refusal(body: bytes) -> ApiError:
    with pytest.raises(ApiError) as caught:
        parse_task(body, LIMITS, "gec-en")
    return caught.value


def test_one_text_is_taken_as_it_is() -> None:
    assert parse_task(b'{"text": " She go.\\n"}', LIMITS, "gec-en") == Task((" She go.\n",), single=True)


def test_several_texts_keep_their_order() -> None:
    task = parse_task(b'{"texts": ["b", "a"], "model": "gec-en"}', LIMITS, "gec-en")
    assert task == Task(("b", "a"), single=False)


def test_of_duplicate_keys_the_last_counts() -> None:
    assert parse_task(b'{"text": "a", "text": "b"}', LIMITS, "gec-en").texts == ("b",)


BAD_BODIES = [
    (b"", "invalid_json", None),
    (b"hello", "invalid_json", None),
    (b'{"text": "a"', "invalid_json", None),
    (b'{"text": "a"} {}', "invalid_json", None),
    (b'{"text": NaN}', "invalid_json", None),
    (b'{"text": "a\nb"}', "invalid_json", None),
    (b'{"text": "\x00"}', "invalid_json", None),
    (b'\xef\xbb\xbf{"text": "a"}', "invalid_json", None),
    ('{"text": "a"}'.encode("utf-16"), "invalid_json", None),
    (b"{" + b'"a":{' * 5_000, "unknown_field", "a"),
    (b"[" * 5_000, "invalid_type", None),
    (b'{"text": ' + b"[" * 5_000, "invalid_type", "text"),
    (b"null", "invalid_type", None),
    (b'["a"]', "invalid_type", None),
    (b'"text"', "invalid_type", None),
    (b'{"text": null}', "invalid_type", "text"),
    (b'{"text": 3}', "invalid_type", "text"),
    (b'{"text": ["a"]}', "invalid_type", "text"),
    (b'{"texts": "a"}', "invalid_type", "texts"),
    (b'{"texts": ["a", "b", 3]}', "invalid_type", "texts[2]"),
    (b'{"texts": ["a", null]}', "invalid_type", "texts[1]"),
    (b'{"text": "a", "model": 3}', "invalid_type", "model"),
    (b"{}", "missing_text", "text"),
    (b'{"model": "gec-en"}', "missing_text", "text"),
    (b'{"text": "a", "texts": ["b"]}', "ambiguous_text", "texts"),
    (b'{"text": "a", "lang": "en"}', "unknown_field", "lang"),
    (b'{"text": "a", "language": "de"}', "unsupported_language", "language"),
    (b'{"text": "a", "language": ""}', "unsupported_language", "language"),
    (b'{"text": "a", "language": "eng"}', "unsupported_language", "language"),
    (b'{"text": "a", "language": "en-"}', "unsupported_language", "language"),
    (b'{"text": "a", "language": "\\ud800"}', "invalid_unicode", "language"),
    (b'{"text": "a", "language": 1}', "invalid_type", "language"),
    (b'{"text": "a", "priority": "urgent"}', "invalid_priority", "priority"),
    (b'{"text": "a", "priority": "Batch"}', "invalid_priority", "priority"),
    (b'{"text": "a", "priority": 1}', "invalid_type", "priority"),
    (b'{"texts": []}', "empty_text", "texts"),
    (b'{"text": ""}', "empty_text", "text"),
    (b'{"texts": ["a", ""]}', "empty_text", "texts[1]"),
    (b'{"text": " \\n\\t\\u00a0"}', "blank_text", "text"),
    (b'{"texts": ["a", "b", " "]}', "blank_text", "texts[2]"),
    (b'{"text": "a\\u0000b"}', "nul_character", "text"),
    (b'{"texts": ["a", "\\u0000"]}', "nul_character", "texts[1]"),
    (b'{"text": "\\ud800"}', "invalid_unicode", "text"),
    (b'{"text": "a \\ud800 b"}', "invalid_unicode", "text"),
    (b'{"text": "a \\udc00 b"}', "invalid_unicode", "text"),
    (b'{"texts": ["a", "\\ud800\\ud800"]}', "invalid_unicode", "texts[1]"),
    (b'{"text": "\xed\xa0\x80"}', "invalid_unicode", "text"),
    (b'{"texts": ["a", "b \xff"]}', "invalid_unicode", "texts[1]"),
    (b'{"\\ud800": "a"}', "invalid_unicode", None),
    (b'{"text": "a", "model": "\\ud800"}', "invalid_unicode", "model"),
    (b'{"text": "a", "model": "\\u0000"}', "nul_character", "model"),
]


@pytest.mark.parametrize(("body", "code", "param"), BAD_BODIES)
def test_a_wrong_body_is_refused_with_its_code_and_field(body: bytes, code: str, param: str | None) -> None:
    error = refusal(body)
    assert (error.status, error.code, error.param) == (400, code, param)
    assert error.type == "invalid_request_error"
    json.dumps(error.message).encode()


@pytest.mark.parametrize(
    ("body", "code", "param", "limit"),
    [
        (json.dumps({"texts": ["a"] * 5}).encode(), "too_many_texts", "texts", 4),
        (json.dumps({"text": "a" * 101}).encode(), "text_too_long", "text", 100),
        (json.dumps({"texts": ["a" * 50, "b" * 50, "c"]}).encode(), "text_too_long", "texts[2]", 100),
    ],
)
def test_too_much_is_refused_with_the_limit(body: bytes, code: str, param: str, limit: int) -> None:
    error = refusal(body)
    assert (error.status, error.code, error.param, error.limit) == (400, code, param, limit)


def test_characters_are_counted_not_bytes() -> None:
    text = "\U0001f600" * 100
    assert parse_task(json.dumps({"text": text}).encode(), LIMITS, "gec-en").texts == (text,)


def test_an_unknown_model_is_not_found() -> None:
    error = refusal(b'{"text": "a", "model": "gpt"}')
    assert (error.status, error.code, error.param) == (404, "model_not_found", "model")


def test_a_body_that_does_not_decode_takes_memory_of_the_order_of_its_size() -> None:
    body = b'{"text": NaN, "%b": [%b0]}' % (b"a" * 20_000, b"0, " * 10_000)
    tracemalloc.start()
    try:
        assert refusal(body).status == 400
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * len(body)


def test_a_long_place_of_what_is_no_unicode_is_told_in_part() -> None:
    body = b'{"text": NaN, "%b": [{"a": [1, "\\ud800"]}]}'
    assert refusal(body % b"b").param == "b[0].a[1]"
    assert refusal(body % (b"b" * 5_000)).param == "b" * 200


@given(st.binary(max_size=200) | st.text(max_size=100).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_no_bytes_whatever_raise_anything_but_a_refusal(body: bytes) -> None:
    assert refusal(body).status in (400, 404)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(st.characters(), max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["text", "texts", "model", "x"]), inner, max_size=4)
        ),
        max_leaves=8,
    )
)
def test_any_json_is_either_a_task_within_limits_or_refused(value: object) -> None:
    with contextlib.suppress(ApiError):
        task = parse_task(json.dumps(value).encode(), LIMITS, "gec-en")
        assert task.texts
        assert all(text.strip() and "\0" not in text for text in task.texts)
        assert [text.encode().decode() for text in task.texts] == list(task.texts)


@pytest.mark.parametrize(
    "value", ["application/json", "Application/JSON; charset=UTF-8", 'application/json;charset="utf-8"']
)
def test_json_in_utf8_is_accepted(value: str) -> None:
    check_content_type(value)


@pytest.mark.parametrize(
    "value",
    [None, "", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1", "json"],
)
def test_any_other_content_type_is_refused(value: str | None) -> None:
    with pytest.raises(ApiError) as caught:
        check_content_type(value)
    assert (caught.value.status, caught.value.code) == (415, "unsupported_media_type")


def test_a_deadline_comes_from_the_header_else_from_the_setting() -> None:
    assert parse_deadline(None, 700, LIMITS) == 700
    assert parse_deadline(" 250 ", 700, LIMITS) == 250


@pytest.mark.parametrize("value", ["", "0", "-1", "1.5", "1e3", "soon", "5001", "9" * 400, "\u0663", "0x10"])
def test_a_deadline_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse_deadline(value, 700, LIMITS)
    assert (caught.value.status, caught.value.code, caught.value.limit) == (400, "invalid_deadline", 5_000)


@pytest.mark.parametrize("language", ["auto", "en", "EN", "en-US", "en_GB", "en-Latn-AU"])
def test_english_is_served_whatever_its_variety(language: str) -> None:
    body = json.dumps({"text": "a", "language": language}).encode()
    assert parse_task(body, LIMITS, "gec-en").texts == ("a",)


def test_a_priority_comes_from_the_body_else_from_the_header() -> None:
    said = parse_task(b'{"text": "a", "priority": "batch"}', LIMITS, "gec-en").priority
    unsaid = parse_task(b'{"text": "a"}', LIMITS, "gec-en").priority
    assert parse_priority(None, said) is Priority.BATCH
    assert parse_priority("interactive", said) is Priority.BATCH
    assert parse_priority(" Batch ", unsaid) is Priority.BATCH
    assert parse_priority(None, unsaid) is Priority.INTERACTIVE


@pytest.mark.parametrize("value", ["", "urgent", "0"])
def test_a_priority_that_is_none_is_refused_even_if_the_body_has_one(value: str) -> None:
    for said in (None, "batch"):
        with pytest.raises(ApiError) as caught:
            parse_priority(value, said)
        assert (caught.value.status, caught.value.code) == (400, "invalid_priority")
        assert caught.value.param == "X-Request-Priority"
