"""The tasks that the compiled lane makes of bodies, against those that Python makes.

Plain bodies are generated, all of which it must take, and damaged, so that it may leave them to Python. What it
takes must be a task for Python too, and the same one.
"""

from __future__ import annotations

import json
from random import Random
from types import ModuleType
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copydesk.gateway.openai.schemas import ChatRequest, CompletionRequest
from copydesk.gateway.openai.validation import Job, parse_chat, parse_completion

MODEL = "acme/grammar"
INT32 = 2**31 - 1
INT64 = 2**63 - 1

Api = Literal["completions", "chats"]
apis: st.SearchStrategy[Api] = st.sampled_from(["completions", "chats"])


def task(native: ModuleType, api: Api, body: bytes) -> bytes | None:
    """The lane's task, after it was found to be Python's."""
    make = native.completion_task if api == "completions" else native.chat_task
    payload: bytes | None = make(body, MODEL.encode())
    if payload is not None:
        job = parse(api, body)
        assert job == Job((payload,), stream=False, include_usage=False, priority=None, fields=job.fields)
    return payload


def parse(api: Api, body: bytes) -> Job:
    """What Python makes of a body."""
    return parse_completion(body, MODEL, most_prompts=8) if api == "completions" else parse_chat(body, MODEL)


# Bodies of plain requests

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=300) | st.text(
    'ab "\\/\n\té€\U0001f600', max_size=40
)
some_text = texts.filter(bool)
tags = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60)


def reals(low: float, high: float, *, above: bool = False) -> st.SearchStrategy[float]:
    """Numbers as clients write them, but for a negative zero; `above`: not the lowest."""
    floats = st.floats(low, high, exclude_min=above, allow_nan=False).map(lambda value: value or 0.0)
    return floats | st.floats(low, high).map(lambda value: round(value, 2) or high) | st.integers(1, int(high))


Fields = dict[str, st.SearchStrategy[Any]]


def or_none(fields: Fields) -> Fields:
    """The same, and null for each."""
    return {name: values | st.none() for name, values in fields.items()}


_off = st.just(False)
_one = st.just(1)
COMMON = or_none(
    {
        "model": st.just(MODEL),
        "max_tokens": st.integers(1, 300) | st.integers(1, INT32),
        "temperature": reals(0, 100),
        "top_p": reals(0, 1, above=True),
        "top_k": st.integers(-1, 300) | st.integers(-1, INT32),
        "min_p": reals(0, 1),
        "seed": st.integers(-200, 70_000) | st.integers(-INT64 - 1, INT64),
        "presence_penalty": reals(-2, 2),
        "frequency_penalty": reals(-2, 2),
        "repetition_penalty": reals(0, 10, above=True),
        "stop": tags.filter(bool) | st.lists(tags.filter(bool), max_size=4),
        "ignore_eos": st.booleans(),
        "stream": _off,
        "logprobs": _off,
        "n": _one,
        "stop_token_ids": st.just([]),
        "user": tags,
        "stream_options": st.none(),
        "priority": st.none(),
        "logit_bias": st.none(),
    }
)
COMPLETIONS = COMMON | or_none({"best_of": _one, "echo": _off, "suffix": st.just("")})
CHATS = COMMON | or_none(
    {
        "store": _off,
        "parallel_tool_calls": st.booleans(),
        "top_logprobs": st.just(0),
        "tools": st.just([]),
        "functions": st.just([]),
        "prompt_cache_key": tags,
        "safety_identifier": tags,
        "metadata": st.none(),
        "response_format": st.none(),
        "tool_choice": st.none(),
    }
)
turns = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "developer", "user", "assistant"]), "content": texts},
    optional={
        name: st.none() for name in ("refusal", "name", "tool_calls", "function_call", "audio", "annotations")
    },
)
newer_limits: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{}, {"max_completion_tokens": 7}, {"max_tokens": None, "max_completion_tokens": 300}]
)
layouts: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{"separators": (",", ":")}, {}, {"indent": 2}, {"indent": "\t\r"}]
)


@st.composite
def plain_requests(draw: st.DrawFn, api: Api) -> dict[str, Any]:
    """The fields of a request that the lane must take."""
    if api == "completions":
        return draw(st.fixed_dictionaries({"prompt": some_text}, optional=COMPLETIONS))
    fields: dict[str, Any] = draw(
        st.fixed_dictionaries({"messages": st.lists(turns, min_size=1, max_size=20)}, optional=CHATS)
    )
    return fields if fields.get("max_tokens") else fields | draw(newer_limits)


@st.composite
def plain_bodies(draw: st.DrawFn, api: Api) -> bytes:
    """Such a request as some client writes it down: in any order, with white space, with escapes."""
    fields = draw(plain_requests(api))
    names = draw(st.permutations(list(fields)))
    ordered = {name: fields[name] for name in names}
    text = json.dumps(ordered, ensure_ascii=draw(st.booleans()), **draw(layouts))
    return (text.replace("/", "\\/") if draw(st.booleans()) else text).encode()


MARKS = b'"\\{}[],:0-.eEnul \t\xc3\xed\xff\x00'


def damaged(body: bytes, chance: Random, marks: bytes = MARKS) -> bytes:
    """What is left of a body after a few edits, which put in `marks` and other bytes."""
    left = bytearray(body)
    for _ in range(chance.randint(1, 3)):
        place = chance.randint(0, len(left))
        put = bytes(
            chance.choice([chance.choice(marks), chance.randrange(256)]) for _ in range(chance.randint(0, 3))
        )
        left[place : place + chance.randint(0, 3)] = put
    return bytes(left)


@given(st.data())
@pytest.mark.parametrize("api", ["completions", "chats"])
def test_every_plain_request_is_taken_and_comes_to_the_task_that_python_makes(
    native: ModuleType, api: Api, data: st.DataObject
) -> None:
    assert task(native, api, data.draw(plain_bodies(api))) is not None


@given(st.data(), st.integers(0))
@pytest.mark.parametrize("api", ["completions", "chats"])
def test_a_damaged_body_is_left_to_python_or_comes_to_the_task_that_python_makes(
    native: ModuleType, api: Api, data: st.DataObject, seed: int
) -> None:
    body, chance = data.draw(plain_bodies(api)), Random(seed)
    for _ in range(30):
        task(native, api, damaged(body, chance))


# Bodies that are hardly plain: any value for any name, in JSON's grammar or nearly

numbers = (
    st.integers().map(str)
    | st.floats().map(repr)
    | st.sampled_from(
        [
            *("0", "-0", "-0.0", "0.0", "00", "01", "1.", ".5", "+1", "-", "1e400", "1e-400", "5e-324", "2.0"),
            *("100.00000000000001", "-1e-9", "0.1234567890123456789012345678901234567890", "NaN", "Infinity"),
            *(str(bound + step) for bound in (0, 1, 100, INT32, INT64, 2**64, -INT64) for step in (-1, 0, 1)),
        ]
    )
)
strings = st.sampled_from(
    [
        *('""', '"\\ud83d\\ude00"', '"\\ud83d"', '"\\ude00\\ud83d"', '"\\u0000"', '"\\u00e9\\n\\/"', '"\\u12g4"'),
        *('"\\x"', '"a', '"tab\t"', '"\x7f"', f'"{MODEL}"', '"user"', '"batch"', '"' + "x" * 1_025 + '"'),
    ]
) | texts.map(json.dumps)
values = st.one_of(
    numbers,
    strings,
    st.sampled_from(
        ["null", "true", "false", "nul", "[]", "{}", "[1]", '["a"]', '["a","b","c","d","e"]', "[null]", ""]
    ),
    st.sampled_from(
        ['[{"role":"user","content":"a"}]', '[{"role":"user","content":[{"type":"text","text":"a"}]}]']
    ),
    st.sampled_from(
        ['[{"role":"us\\u0065r","content":"a"}]', '[{"content":"a"}]', '[{"role":"user","content":null}]']
    ),
    st.sampled_from(['[{"role":"user","role":"user","content":"a"}]', "[[1,2]]", '{"include_usage":true}']),
)
names = st.sampled_from(
    sorted(
        {
            *CompletionRequest.__struct_fields__,
            *ChatRequest.__struct_fields__,
            "tempera\\u0074ure",
            "",
            "N",
            "promp",
        }
    )
)
NEEDED = {"completions": '"prompt":"a"', "chats": '"messages":[{"role":"user","content":"a"}]'}


@settings(max_examples=200)
@given(apis, st.lists(st.tuples(names, values), max_size=4), st.integers(0, 4))
def test_any_values_are_left_to_python_or_come_to_the_task_that_python_makes(
    native: ModuleType, api: Api, fields: list[tuple[str, str]], place: int
) -> None:
    members = [f'"{name}":{value}' for name, value in fields]
    members.insert(place, NEEDED[api])
    task(native, api, ("{" + ",".join(members) + "}").encode())


@given(st.sampled_from(sorted(COMMON)), numbers, st.integers(0))
def test_numbers_however_written_are_left_to_python_or_taken_as_python_takes_them(
    native: ModuleType, name: str, number: str, seed: int
) -> None:
    chance = Random(seed)
    for written in [number.encode(), *(damaged(number.encode(), chance, b"0123456789.eE+-") for _ in range(20))]:
        task(native, "completions", b'{"prompt":"a","%s":%s}' % (name.encode(), written))


COMPLETION_BODIES = [
    b'{"prompt":"She go."}',
    b'{"model":"acme/grammar","prompt":"She go.","max_tokens":64,"temperature":0}',
    b'{"model": "acme/grammar", "prompt": "She go to school.\\nFix: ", "max_tokens": 7, "temperature": 0.0}',
    b'{\n  "model": "acme/grammar",\n  "prompt": "Say this",\n  "max_tokens": 7,\n  "temperature": 0\n}\n',
    b'{"model":"acme\\/grammar","prompt":"Caf\\u00e9 \\ud83d\\ude00 \\"now\\"","temperature":0.7,"top_p":0.95}',
    '{"model":"acme/grammar","prompt":"Café 😀 → 日本語","best_of":1,"echo":false,"logprobs":null}'.encode(),
    b'{"prompt":"a","max_tokens":2147483647,"top_k":-1,"min_p":0.05,"seed":-9223372036854775808,"user":"u-1"}',
    b'{"prompt":"a","repetition_penalty":1.0,"presence_penalty":-2,"frequency_penalty":1e-1,"ignore_eos":true}',
    b'{"prompt":"a","stop":"\\n\\n","stream":false,"suffix":null,"logit_bias":null,"stream_options":null}',
    b'{"prompt":"a","stop":["###","END"],"temperature":0.30000000000000004,"seed":9223372036854775807}',
    json.dumps({"prompt": "word " * 20_000, "max_tokens": 300, "top_k": 70_000}).encode(),
]
CHAT_BODIES = [
    b'{"messages":[{"role":"user","content":"She go."}]}',
    b'{"model":"acme/grammar","messages":[{"role":"system","content":"Fix"},{"role":"user","content":"It go"}]}',
    b'{"messages":[{"content":"She go.","role":"user"}],"max_completion_tokens":64,"top_p":1,"stream":false}',
    b'{"messages":[{"role":"developer","content":""}],"max_tokens":9,"max_completion_tokens":9,"store":false}',
    json.dumps(
        {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}] * 40}
    ).encode(),
    json.dumps(
        {
            "model": MODEL,
            "messages": [
                {"role": "user", "content": "Hi"},
                {
                    "role": "assistant",
                    "content": "Hello",
                    "refusal": None,
                    "tool_calls": None,
                    "annotations": None,
                },
                {"role": "user", "content": "She go. \U0001f600"},
            ],
            "n": 1,
            "user": "u",
            "top_p": 1,
            "logprobs": False,
            "tools": [],
            "response_format": None,
            "stop": [],
        },
        indent=4,
    ).encode(),
]


@pytest.mark.parametrize("body", COMPLETION_BODIES)
def test_what_clients_send_for_a_completion_is_plain(native: ModuleType, body: bytes) -> None:
    assert task(native, "completions", body) is not None


@pytest.mark.parametrize("body", CHAT_BODIES)
def test_what_clients_send_for_a_chat_is_plain(native: ModuleType, body: bytes) -> None:
    assert task(native, "chats", body) is not None


@pytest.mark.parametrize(
    "fields",
    [
        '"stream":true',
        '"priority":"batch"',
        '"model":"another"',
        '"model":"acme/gramma"',
        '"user":"a","user":"a"',
        '"prompt":"a"',
        '"unknown":null',
        '"mode\\u006c":"acme/grammar"',
        '"max_tokens":0',
        '"max_tokens":1.0',
        '"max_tokens":2147483648',
        '"temperature":100.1',
        '"temperature":01',
        '"top_p":0',
        '"seed":9223372036854775808',
        '"stop":""',
        '"stop":["a","b","c","d","e"]',
        '"stop_token_ids":[1]',
        '"n":2',
        '"echo":true',
        '"user":"\\ud800"',
        '"user":"\\u0000"',
        '"user":' + json.dumps("x" * 1_025),
        '"max_completion_tokens":4',
        '"logprobs":0',
    ],
)
def test_what_is_not_plain_is_left_to_python(native: ModuleType, fields: str) -> None:
    body = f'{{"prompt":"a",{fields}}}'.encode()
    assert native.completion_task(body, MODEL.encode()) is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b'{"prompt":""}',
        b'{"prompt":["a"]}',
        b'{"prompt":"a"',
        b'{"prompt":"a"}}',
        b'{"prompt":"a",}',
        b'\xef\xbb\xbf{"prompt":"a"}',
        b'{"prompt":"\xed\xa0\x80"}',
        b'{"prompt":"\xc3"}',
        b'{"prompt":"\xf5\x80\x80\x80"}',
        b'{"prompt":"tab\t"}',
    ],
)
def test_what_is_no_prompt_or_no_json_is_left_to_python(native: ModuleType, body: bytes) -> None:
    assert native.completion_task(body, MODEL.encode()) is None


@pytest.mark.parametrize(
    "messages",
    [
        "[]",
        '[{"role":"tool","content":"a"}]',
        '[{"role":"user"}]',
        '[{"content":"a"}]',
        '[{"role":"user","content":null}]',
        '[{"role":"user","content":"a","name":"b"}]',
        '[{"role":"user","role":"user","content":"a"}]',
        '"a"',
        "null",
    ],
)
def test_messages_that_are_not_plain_are_left_to_python(native: ModuleType, messages: str) -> None:
    assert native.chat_task(f'{{"messages":{messages}}}'.encode(), MODEL.encode()) is None


def test_two_different_limits_of_a_chat_are_left_to_python(native: ModuleType) -> None:
    body = b'{"messages":[{"role":"user","content":"a"}],"max_tokens":1,"max_completion_tokens":2}'
    assert native.chat_task(body, MODEL.encode()) is None
