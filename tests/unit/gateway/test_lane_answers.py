"""The answers that the compiled lane makes, against Python's.

Payloads are generated, and then damaged; those that the lane leaves to Python are not looked at any further.
"""

from __future__ import annotations

from random import Random
from types import ModuleType
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.common.tasks import GeneratedText, Stopped
from copydesk.gateway.openai.forms import ChatForm, CompletionForm, Ended, Heading

INT32 = 2**31 - 1
INT64 = 2**63 - 1

Api = Literal["completions", "chats"]
apis: st.SearchStrategy[Api] = st.sampled_from(["completions", "chats"])


texts = st.text(max_size=300) | st.text('ab "\\/\n\té€\U0001f600\x00\x1f', max_size=40)
tags = st.text(max_size=60)

counts = st.integers(0, 200) | st.integers(0, INT32)
answers = st.builds(
    GeneratedText,
    text=texts,
    finish=st.sampled_from(Stopped),
    stop_reason=st.none() | tags | counts | st.integers(-INT64 - 1, INT64),
    prompt_tokens=counts,
    completion_tokens=counts,
    passes=st.none() | counts,
    drafted=st.none() | counts,
    accepted=st.none() | counts,
)
unknown_values = st.recursive(
    st.none() | st.booleans() | st.integers(-INT64 - 1, 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=18) | st.dictionaries(st.text() | st.integers(0, 9), inner, max_size=18)
    ),
    max_leaves=6,
)
headings = st.builds(Heading, id=tags, created=st.integers(-INT64 - 1, INT64), model=texts)
digests = st.just("") | tags


def answer(native: ModuleType, api: Api, payload: bytes, heading: Heading, digest: str) -> bytes | None:
    """The lane's answer, after it was found to be Python's."""
    form = CompletionForm() if api == "completions" else ChatForm()
    make = native.completion_answer if api == "completions" else native.chat_answer
    model, fingerprint = msgspec.json.encode(heading.model), msgspec.json.encode(digest) if digest else b""
    body: bytes | None = make(payload, heading.id.encode(), heading.created, model, fingerprint)
    if body is not None:
        ended = Ended(msgspec.msgpack.decode(payload, type=GeneratedText), digest)
        named = Heading(form.id_prefix + heading.id, heading.created, heading.model)
        assert body == msgspec.json.encode(form.whole(named, [ended]))
    return body


def packed(generated: GeneratedText, fields: int = 9, more: list[Any] | None = None) -> bytes:
    """An answer as a pod of another version sends it: with as many fields, or with some `more`."""
    return msgspec.msgpack.encode([*msgspec.to_builtins(generated)[:fields], *(more or [])])


@given(apis, answers, headings, digests)
def test_answers_of_pods_come_to_the_bodies_that_python_makes(
    native: ModuleType, api: Api, generated: GeneratedText, heading: Heading, digest: str
) -> None:
    assert answer(native, api, msgspec.msgpack.encode(generated), heading, digest) is not None


MARKS = b"\x00\x7f\x80\x90\xa0\xc0\xc1\xc3\xc4\xca\xcf\xd0\xd3\xd9\xdc\xdf\xe0\xff"


def damaged(payload: bytes, chance: Random) -> bytes:
    """What is left of a payload after a few edits."""
    left = bytearray(payload)
    for _ in range(chance.randint(1, 3)):
        place = chance.randint(0, len(left))
        put = bytes(
            chance.choice([chance.choice(MARKS), chance.randrange(256)]) for _ in range(chance.randint(0, 3))
        )
        left[place : place + chance.randint(0, 3)] = put
    return bytes(left)


HEADING = Heading("3f2a", 1_700_000_000, "acme/grammar")


@given(apis, answers, st.integers(6, 8), st.lists(unknown_values, max_size=6))
def test_older_and_newer_pods_are_understood(
    native: ModuleType, api: Api, generated: GeneratedText, fields: int, more: list[Any]
) -> None:
    assert answer(native, api, packed(generated, fields), HEADING, "") is not None
    assert answer(native, api, packed(generated, 9, more), HEADING, "") is not None


@given(apis, answers, st.lists(unknown_values, max_size=2), st.integers(0))
def test_a_damaged_answer_is_left_to_python_or_comes_to_the_body_that_python_makes(
    native: ModuleType, api: Api, generated: GeneratedText, more: list[Any], seed: int
) -> None:
    payload, chance = packed(generated, 9, more), Random(seed)
    for _ in range(30):
        answer(native, api, damaged(payload, chance), HEADING, "sha256:1")


@pytest.mark.parametrize(
    "fields",
    [
        ["corrected", "a", "stop", None, 1, 2],
        ["generated_text", "a", "stop", None, 1],
        ["generated_text", b"a", "stop", None, 1, 2],
        ["generated_text", "a", "stopped", None, 1, 2],
        ["generated_text", "a", "stop", 1.0, 1, 2],
        ["generated_text", "a", "stop", None, True, 2],
        ["generated_text", "a", "stop", None, 1, 2, "3"],
        ["generated_text", "a", "stop", None, 1, 2, 3, 4, 5.0],
    ],
)
def test_answers_that_are_none_are_left_to_python(native: ModuleType, fields: list[Any]) -> None:
    payload = msgspec.msgpack.encode(fields)
    assert native.completion_answer(payload, b"1", 0, b'"m"', b"") is None
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(payload, type=GeneratedText)


@pytest.mark.parametrize(
    "text", [b"\xff", b"a\xc3", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"abcdefgh\x80"]
)
def test_answers_that_are_no_utf8_are_left_to_python(native: ModuleType, text: bytes) -> None:
    payload = packed(GeneratedText("?", Stopped.STOP, None, 1, 2)).replace(
        b"\xa1?", bytes([0xA0 + len(text)]) + text
    )
    assert native.chat_answer(payload, b"1", 0, b'"m"', b"") is None
    with pytest.raises((msgspec.MsgspecError, UnicodeDecodeError)):
        msgspec.msgpack.decode(payload, type=GeneratedText)


@pytest.mark.parametrize("reason", [b"\xb9!", b"\xd9\x7f", b"\xda\0", b"\xcd\1", b"\xc1"])
def test_answers_that_are_cut_off_are_left_to_python(native: ModuleType, reason: bytes) -> None:
    payload = b"\x96" + b"".join(map(msgspec.msgpack.encode, ["generated_text", "a", "stop"])) + reason + b"\1\2"
    assert native.completion_answer(payload, b"1", 0, b'"m"', b"") is None
    with pytest.raises(msgspec.DecodeError):
        msgspec.msgpack.decode(payload, type=GeneratedText)


def test_bytes_behind_an_answer_are_left_to_python(native: ModuleType) -> None:
    payload = packed(GeneratedText("a", Stopped.STOP, None, 1, 2)) + b"\0"
    assert native.completion_answer(payload, b"1", 0, b'"m"', b"") is None
