"""What requests to OpenAI's APIs become, and the error that each wrong one gets."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.common.tasks import ChatMessage, ChatPrompt, GenerateText, TextPrompt, TokenPrompt
from copydesk.gateway.faults import ApiError, PodRefusalError
from copydesk.gateway.openai.refusals import of_pod
from copydesk.gateway.openai.validation import Job, parse_chat, parse_completion

MODEL = "gec-en"
USER = {"role": "user", "content": "Hello."}


def completion(body: dict[str, Any] | bytes) -> Job:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return parse_completion(raw, MODEL, most_prompts=3)


def chat(body: dict[str, Any] | bytes) -> Job:
    return parse_chat(body if isinstance(body, bytes) else json.dumps(body).encode(), MODEL)


def tasks(job: Job) -> list[GenerateText]:
    return [msgspec.msgpack.decode(payload, type=GenerateText) for payload in job.payloads]


def completion_refusal(body: dict[str, Any] | bytes) -> ApiError:
    with pytest.raises(ApiError) as caught:
        completion(body)
    return caught.value


def chat_refusal(body: dict[str, Any] | bytes) -> ApiError:
    with pytest.raises(ApiError) as caught:
        chat(body)
    return caught.value


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("Once", [TextPrompt("Once")]),
        (["Once", "Twice"], [TextPrompt("Once"), TextPrompt("Twice")]),
        (["Once"], [TextPrompt("Once")]),
        ([5, 6], [TokenPrompt([5, 6])]),
        ([[5, 6], [7]], [TokenPrompt([5, 6]), TokenPrompt([7])]),
    ],
)
def test_each_kind_of_prompt_becomes_a_task_a_choice(prompt: object, prompts: list[object]) -> None:
    assert [task.prompt for task in tasks(completion({"prompt": prompt}))] == prompts


def test_a_completion_without_parameters_has_the_defaults_of_openai() -> None:
    (task,) = tasks(completion({"prompt": "Once"}))
    assert task == GenerateText(TextPrompt("Once"), max_tokens=16)


def test_a_chat_without_parameters_may_be_as_long_as_the_context() -> None:
    (task,) = tasks(chat({"messages": [USER]}))
    assert task == GenerateText(ChatPrompt([ChatMessage("user", "Hello.")]), max_tokens=None)


def test_every_parameter_reaches_the_task() -> None:
    given_ = {
        "max_tokens": 7,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 40,
        "min_p": 0.1,
        "seed": -3,
        "presence_penalty": 1,
        "frequency_penalty": -1.5,
        "repetition_penalty": 1.2,
        "stop": ["a", "b"],
        "ignore_eos": True,
    }
    extra = {"stop_token_ids": [2], "stream": True, "user": "u", "model": MODEL}
    (task,) = tasks(completion({"prompt": "Once", **given_, **extra}))
    assert task == GenerateText(TextPrompt("Once"), **given_, stop_ids=[2], stream=True)  # type: ignore[arg-type]


def test_a_temperature_of_zero_stays_zero() -> None:
    (task,) = tasks(chat({"messages": [USER], "temperature": 0}))
    assert task.temperature == 0


def test_one_stop_string_is_a_list_of_one() -> None:
    assert tasks(completion({"prompt": "Once", "stop": "END"}))[0].stop == ["END"]


def test_parts_of_a_message_are_put_together_with_line_breaks() -> None:
    parts = [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]
    (task,) = tasks(chat({"messages": [{"role": "developer", "content": parts}, USER]}))
    assert task.prompt == ChatPrompt([ChatMessage("developer", "One.\nTwo."), ChatMessage("user", "Hello.")])


@pytest.mark.parametrize(("name", "value"), [("max_tokens", 5), ("max_completion_tokens", 5)])
def test_both_names_of_the_limit_of_a_chat_are_known(name: str, value: int) -> None:
    assert tasks(chat({"messages": [USER], name: value}))[0].max_tokens == 5


def test_usage_in_the_stream_is_asked_for() -> None:
    job = completion({"prompt": "a", "stream": True, "stream_options": {"include_usage": True}})
    assert (job.stream, job.include_usage) == (True, True)
    assert completion({"prompt": "a", "stream": True, "stream_options": None}).include_usage is False


NOTHING_ASKED: list[dict[str, Any]] = [
    {"n": 1, "logprobs": None, "logit_bias": {}, "user": None, "stop": None},
    {"best_of": 1, "echo": False, "suffix": None, "logprobs": None},
    {"suffix": "", "logprobs": False, "stop": [], "stop_token_ids": []},
    {"temperature": None, "top_p": None, "max_tokens": None, "seed": None, "stream": None, "stream_options": None},
    {"top_k": None, "min_p": None, "repetition_penalty": None, "stop_token_ids": None, "priority": None},
]


@pytest.mark.parametrize("extra", NOTHING_ASKED)
def test_what_stands_for_nothing_in_a_completion_changes_nothing(extra: dict[str, Any]) -> None:
    assert completion({"prompt": "Once", **extra}) == completion({"prompt": "Once"})


@pytest.mark.parametrize(
    "extra",
    [
        {
            "tools": [],
            "tool_choice": "none",
            "functions": [],
            "function_call": "none",
            "parallel_tool_calls": True,
        },
        {"tools": None, "tool_choice": "auto", "functions": None, "function_call": None},
        {"response_format": {"type": "text"}, "modalities": ["text"], "audio": None, "prediction": None},
        {"logprobs": False, "top_logprobs": 0, "logit_bias": None, "n": None, "store": False, "metadata": None},
        {"service_tier": "auto", "reasoning_effort": None, "verbosity": None, "web_search_options": None},
        {"metadata": {"ticket": "7"}, "user": "ana", "safety_identifier": "x", "prompt_cache_key": "y"},
    ],
)
def test_what_stands_for_nothing_in_a_chat_changes_nothing(extra: dict[str, Any]) -> None:
    assert chat({"messages": [USER], **extra}) == chat({"messages": [USER]})


def test_an_answer_may_be_sent_back_as_clients_keep_it() -> None:
    answer: dict[str, Any] = {
        "role": "assistant",
        "content": "Hi.",
        "refusal": None,
        "annotations": [],
        "audio": None,
        "function_call": None,
        "tool_calls": None,
    }
    (task,) = tasks(chat({"messages": [USER, answer, USER]}))
    assert isinstance(task.prompt, ChatPrompt)
    assert task.prompt.messages[1] == ChatMessage("assistant", "Hi.")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 2),
        ("best_of", 3),
        ("echo", True),
        ("suffix", "end"),
        ("logprobs", 1),
        ("logprobs", True),
        ("logprobs", 0),
        ("logit_bias", {"50256": -100}),
    ],
)
def test_what_completions_here_do_not_do_is_refused_by_name(name: str, value: object) -> None:
    error = completion_refusal({"prompt": "Once", name: value})
    assert (error.status, error.code, error.param) == (400, "unsupported_parameter", name)
    assert "not supported" in error.message


@pytest.mark.parametrize(
    ("name", "value", "param"),
    [
        ("n", 2, "n"),
        ("logprobs", True, "logprobs"),
        ("top_logprobs", 5, "top_logprobs"),
        ("tools", [{"type": "function", "function": {"name": "f"}}], "tools"),
        ("tool_choice", "required", "tool_choice"),
        ("tool_choice", {"type": "function"}, "tool_choice"),
        ("functions", [{"name": "f"}], "functions"),
        ("function_call", {"name": "f"}, "function_call"),
        ("response_format", {"type": "json_object"}, "response_format.type"),
        ("response_format", {"json_schema": {}, "type": "json_schema"}, "response_format.json_schema"),
        ("modalities", ["text", "audio"], "modalities[1]"),
        ("audio", {"voice": "alloy"}, "audio"),
        ("prediction", {"type": "content", "content": "a"}, "prediction"),
        ("store", True, "store"),
        ("service_tier", "flex", "service_tier"),
        ("reasoning_effort", "low", "reasoning_effort"),
        ("web_search_options", {}, "web_search_options"),
    ],
)
def test_what_chats_here_do_not_do_is_refused_by_name(name: str, value: object, param: str) -> None:
    error = chat_refusal({"messages": [USER], name: value})
    assert (error.status, error.code, error.param) == (400, "unsupported_parameter", param)


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"content": [{"type": "image_url", "image_url": {"url": "x"}}]}, "messages[0].content[0].type"),
        ({"content": [{"image_url": {"url": "x"}, "type": "image_url"}]}, "messages[0].content[0].image_url"),
        ({"content": "Hi.", "name": "ana"}, "messages[0].name"),
        ({"content": "Hi.", "tool_calls": [{"id": "1"}]}, "messages[0].tool_calls"),
        ({"content": "Hi.", "tool_call_id": "1"}, "messages[0].tool_call_id"),
        ({"content": "Hi.", "function_call": {"name": "f"}}, "messages[0].function_call"),
    ],
)
def test_messages_that_are_more_than_text_are_refused_by_place(message: dict[str, Any], param: str) -> None:
    error = chat_refusal({"messages": [{"role": "user", **message}]})
    assert (error.status, error.code, error.param) == (400, "unsupported_parameter", param)


@pytest.mark.parametrize("option", ["include_obfuscation", "continuous_usage_stats"])
def test_unknown_ways_to_stream_are_refused_by_name(option: str) -> None:
    error = completion_refusal({"prompt": "a", "stream": True, "stream_options": {option: True}})
    assert (error.code, error.param) == ("unsupported_parameter", f"stream_options.{option}")
    assert completion({"prompt": "a", "stream": True, "stream_options": {option: False}}).stream


BAD_COMPLETIONS: list[tuple[bytes, str, str | None]] = [
    (b"", "invalid_json", None),
    (b'{"prompt": "a"', "invalid_json", None),
    (b"[]", "invalid_type", None),
    (b"{}", "missing_required_parameter", "prompt"),
    (b'{"prompt": null}', "invalid_type", "prompt"),
    (b'{"prompt": 3}', "invalid_type", "prompt"),
    (b'{"prompt": ""}', "empty_prompt", "prompt"),
    (b'{"prompt": []}', "empty_prompt", "prompt"),
    (b'{"prompt": ["a", ""]}', "empty_prompt", "prompt[1]"),
    (b'{"prompt": [[1], []]}', "empty_prompt", "prompt[1]"),
    (b'{"prompt": ["a", 1]}', "invalid_type", "prompt"),
    (b'{"prompt": ["a", [1]]}', "invalid_type", "prompt"),
    (b'{"prompt": ["a", null]}', "invalid_type", "prompt[1]"),
    (b'{"prompt": [1, 2.5]}', "invalid_type", "prompt[1]"),
    (b'{"prompt": [1, true]}', "invalid_type", "prompt[1]"),
    (b'{"prompt": [-1]}', "invalid_value", "prompt[0]"),
    (b'{"prompt": [[1], [99999999999]]}', "invalid_value", "prompt[1][0]"),
    (b'{"prompt": ["a", "b", "c", "d"]}', "too_many_prompts", "prompt"),
    (b'{"prompt": "a", "prompts": "b"}', "unknown_field", "prompts"),
    (b'{"prompt": "a", "max_completion_tokens": 3}', "unknown_field", "max_completion_tokens"),
    (b'{"prompt": "a", "stream": true, "stream_options": {"x": 1}}', "unknown_field", "stream_options.x"),
    (b'{"prompt": "a", "stream_options": {"include_usage": true}}', "invalid_value", "stream_options"),
    (b'{"prompt": "a", "temperature": "hot"}', "invalid_type", "temperature"),
    (b'{"prompt": "a", "temperature": -0.1}', "invalid_value", "temperature"),
    (b'{"prompt": "a", "temperature": 101}', "invalid_value", "temperature"),
    (b'{"prompt": "a", "top_p": 0}', "invalid_value", "top_p"),
    (b'{"prompt": "a", "top_p": 1.1}', "invalid_value", "top_p"),
    (b'{"prompt": "a", "top_k": -2}', "invalid_value", "top_k"),
    (b'{"prompt": "a", "min_p": 2}', "invalid_value", "min_p"),
    (b'{"prompt": "a", "repetition_penalty": 0}', "invalid_value", "repetition_penalty"),
    (b'{"prompt": "a", "presence_penalty": 2.5}', "invalid_value", "presence_penalty"),
    (b'{"prompt": "a", "frequency_penalty": -2.5}', "invalid_value", "frequency_penalty"),
    (b'{"prompt": "a", "max_tokens": 0}', "invalid_value", "max_tokens"),
    (b'{"prompt": "a", "max_tokens": 1.5}', "invalid_type", "max_tokens"),
    (b'{"prompt": "a", "seed": 9223372036854775808}', "invalid_value", "seed"),
    (b'{"prompt": "a", "stop": ""}', "invalid_value", "stop"),
    (b'{"prompt": "a", "stop": ["a", "b", "c", "d", "e"]}', "invalid_value", "stop"),
    (b'{"prompt": "a", "stop": ["a", 5]}', "invalid_type", "stop[1]"),
    (b'{"prompt": "a", "priority": "urgent"}', "invalid_priority", "priority"),
    (b'{"prompt": "\\ud800"}', "invalid_unicode", "prompt"),
    (b'{"prompt": ["a", "b \\udc00 c"]}', "invalid_unicode", "prompt[1]"),
    (b'{"prompt": "a", "stop": ["\\ud800"]}', "invalid_unicode", "stop[0]"),
]


@pytest.mark.parametrize(("body", "code", "param"), BAD_COMPLETIONS)
def test_a_wrong_completion_is_refused_with_code_and_field(body: bytes, code: str, param: str | None) -> None:
    error = completion_refusal(body)
    assert (error.status, error.code, error.param) == (400, code, param)
    json.dumps(error.message).encode()


BAD_CHATS: list[tuple[bytes, str, str | None]] = [
    (b"{}", "missing_required_parameter", "messages"),
    (b'{"messages": []}', "invalid_value", "messages"),
    (b'{"messages": "Hi."}', "invalid_type", "messages"),
    (b'{"messages": [{"role": "user"}]}', "missing_required_parameter", "messages[0].content"),
    (b'{"messages": [{"content": "a"}]}', "missing_required_parameter", "messages[0].role"),
    (b'{"messages": [{"role": "user", "content": null}]}', "invalid_type", "messages[0].content"),
    (b'{"messages": [{"role": "tool", "content": "a"}]}', "invalid_value", "messages[0].role"),
    (b'{"messages": [{"role": 1, "content": "a"}]}', "invalid_type", "messages[0].role"),
    (b'{"messages": [{"role": "user", "content": ["a"]}]}', "invalid_type", "messages[0].content[0]"),
    (
        b'{"messages": [{"role": "user", "content": [{"type": "text"}]}]}',
        "missing_required_parameter",
        "messages[0].content[0].text",
    ),
    (
        b'{"messages": [{"role": "user", "content": [{"text": "a"}]}]}',
        "missing_required_parameter",
        "messages[0].content[0].type",
    ),
    (b'{"messages": [{"role": "user", "content": "a", "mood": 1}]}', "unknown_field", "messages[0].mood"),
    (
        b'{"messages": [{"role": "user", "content": "a"}], "max_tokens": 1, "max_completion_tokens": 2}',
        "invalid_value",
        "max_tokens",
    ),
    (b'{"messages": [{"role": "user", "content": "a \\ud800"}]}', "invalid_unicode", "messages[0].content"),
]


@pytest.mark.parametrize(("body", "code", "param"), BAD_CHATS)
def test_a_wrong_chat_is_refused_with_code_and_field(body: bytes, code: str, param: str | None) -> None:
    error = chat_refusal(body)
    assert (error.status, error.code, error.param) == (400, code, param)


def test_a_wrong_role_is_told_the_right_ones() -> None:
    error = chat_refusal({"messages": [{"role": "tool", "content": "a"}]})
    assert "system, developer, user and assistant" in error.message


def test_another_model_is_not_found() -> None:
    for refusal in (
        completion_refusal({"prompt": "a", "model": "gpt-4o"}),
        chat_refusal({"messages": [USER], "model": "gpt-4o"}),
    ):
        assert (refusal.status, refusal.code, refusal.param) == (404, "model_not_found", "model")


def test_what_a_client_sent_comes_back_shortened() -> None:
    body = {"messages": [{"role": "x" * 5_000, "content": "a"}]}
    assert len(chat_refusal(body).message) < 400
    name = chat_refusal({"messages": [USER], "y" * 5_000: 1})
    assert len(name.message) < 400
    assert name.param is not None
    assert len(name.param) < 300


@pytest.mark.parametrize(
    ("reason", "said", "parameter", "code", "param"),
    [
        (
            "prompt_too_long",
            "prompt has 600 tokens; at most 511 fit",
            "prompt",
            "context_length_exceeded",
            "prompt[1]",
        ),
        ("context_exceeded", "max_tokens is 9, too many", "max_tokens", "context_length_exceeded", "max_tokens"),
        ("unknown_token", "prompt: the model has no token 9", "prompt", "unknown_token", "prompt[1]"),
        ("unknown_token", "stop_ids: the model has no token 9", "stop_ids", "unknown_token", "stop_token_ids"),
        ("invalid_sampling", "top_k is -5; expected 0", "top_k", "invalid_value", "top_k"),
        ("messages_refused", "the template refuses", "messages", "messages_refused", "messages"),
        ("unheard_of", "something new", "", "refused_by_model", None),
    ],
)
def test_a_refusal_by_a_pod_names_the_field_that_the_client_sent(
    reason: str, said: str, parameter: str, code: str, param: str | None
) -> None:
    job = completion({"prompt": ["a", "b"]})
    error = of_pod(PodRefusalError(reason, said, parameter), job.fields_of(1))
    assert (error.status, error.code, error.param) == (400, code, param)
    assert "stop_ids" not in error.message


def test_the_newer_name_of_the_limit_comes_back_where_it_was_used() -> None:
    refusal = PodRefusalError("context_exceeded", "max_tokens is 9, too many", "max_tokens")
    newer = of_pod(refusal, chat({"messages": [USER], "max_completion_tokens": 9}).fields_of(0))
    assert (newer.param, newer.message) == ("max_completion_tokens", "max_completion_tokens is 9, too many.")
    older = of_pod(refusal, chat({"messages": [USER], "max_tokens": 9}).fields_of(0))
    assert older.param == "max_tokens"


def test_a_pod_that_does_not_understand_is_none_of_the_clients_doing() -> None:
    assert of_pod(PodRefusalError("bad_payload", "what?", ""), {}).status == 502


_VALUES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
_JSON = st.recursive(_VALUES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner))
_NAMES = st.sampled_from(
    ["prompt", "messages", "stop", "n", "tools", "stream", "stream_options", "model", "top_k"]
)


@given(st.dictionaries(_NAMES | st.text(max_size=3), _JSON, max_size=5))
def test_no_json_whatever_raises_anything_but_a_refusal(body: dict[str, Any]) -> None:
    raw = json.dumps(body).encode()
    for parse in (completion, chat):
        with contextlib.suppress(ApiError):
            parse(raw)


@given(st.binary(max_size=100))
def test_no_bytes_whatever_raise_anything_but_a_refusal(body: bytes) -> None:
    assert completion_refusal(body).status == 400
    assert chat_refusal(body).status == 400
