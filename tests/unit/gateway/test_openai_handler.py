"""OpenAI's endpoints from the exchange to the pod and back, without a connection to a client."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from copydesk.common.rpc import Fault, Status
from copydesk.common.tasks import ChatPrompt, GeneratedText, Stopped, TextPrompt
from copydesk.gateway.faults import ApiError
from copydesk.gateway.http.exchange import Handler
from copydesk.gateway.openai.handler import handlers
from copydesk.gateway.paths import CHAT_COMPLETIONS, COMPLETIONS
from copydesk.gateway.service import Gateway
from tests.fixtures.text_pod import TextPod
from tests.fixtures.wire import JSON_HEADERS, Wire
from tests.unit.gateway.conftest import Desk, eventually

CREATED = 1_700_000_000
TURNS = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "She goes to school."}]

Ask = Callable[..., Wire]


@pytest.fixture
async def pod() -> Any:
    pod = TextPod()
    await pod.start()
    yield pod
    await pod.stop()


@pytest.fixture
async def gateway(desk: Desk, pod: TextPod) -> Gateway:
    return await desk.gateway(pod, request_concurrency=4)


def asking(handler: Handler) -> Ask:
    def ask(headers: dict[bytes, bytes] | None = None, **body: Any) -> Wire:
        wire = Wire(json.dumps(body).encode(), JSON_HEADERS | (headers or {}))
        handler(wire)
        return wire

    return ask


@pytest.fixture
def complete(gateway: Gateway) -> Ask:
    return asking(handlers(gateway, lambda: CREATED)[COMPLETIONS])


@pytest.fixture
def chat(gateway: Gateway) -> Ask:
    return asking(handlers(gateway, lambda: CREATED)[CHAT_COMPLETIONS])


async def test_a_completion_has_the_shape_of_openais(complete: Ask) -> None:
    wire = complete(prompt="Once upon a time there was", max_tokens=3)
    await wire.over.wait()
    assert wire.answer == {
        "id": "cmpl-req-1",
        "object": "text_completion",
        "created": CREATED,
        "model": "gec-en",
        "choices": [
            {
                "index": 0,
                "text": "Once upon a ",
                "logprobs": None,
                "finish_reason": "length",
                "stop_reason": None,
            }
        ],
        "usage": {"prompt_tokens": 6, "completion_tokens": 3, "total_tokens": 9},
        "system_fingerprint": "sha256:fake",
    }


async def test_a_chat_has_the_shape_of_openais(chat: Ask, pod: TextPod) -> None:
    wire = chat(messages=TURNS, stop=" to")
    await wire.over.wait()
    assert wire.answer == {
        "id": "chatcmpl-req-1",
        "object": "chat.completion",
        "created": CREATED,
        "model": "gec-en",
        "choices": [
            {
                "index": 0,
                "message": {"content": "She goes", "role": "assistant", "refusal": None},
                "finish_reason": "stop",
                "stop_reason": " to",
                "logprobs": None,
            }
        ],
        "usage": {"prompt_tokens": 4, "completion_tokens": 4, "total_tokens": 8},
        "system_fingerprint": "sha256:fake",
    }
    (task,) = pod.tasks
    assert isinstance(task.prompt, ChatPrompt)
    assert [message.role for message in task.prompt.messages] == ["system", "user"]


async def test_each_of_several_prompts_has_the_choice_of_its_index(complete: Ask, pod: TextPod) -> None:
    prompts = [f"Number {number}." for number in range(20)]
    wire = complete(prompt=prompts)
    await wire.over.wait()
    assert [(choice["index"], choice["text"]) for choice in wire.answer["choices"]] == list(enumerate(prompts))
    assert wire.answer["usage"] == {"prompt_tokens": 40, "completion_tokens": 40, "total_tokens": 80}
    assert pod.at_once <= 4


async def test_a_stream_gives_the_text_its_end_the_usage_and_done(chat: Ask) -> None:
    wire = chat(messages=TURNS, stream=True, stream_options={"include_usage": True})
    await wire.over.wait()
    kind, headers = wire.told[0][1]
    assert kind.startswith(b"text/event-stream")
    assert headers[b"cache-control"] == b"no-cache"
    *parts, usage, done = wire.events
    assert "".join(part["choices"][0]["delta"].get("content", "") for part in parts) == "She goes to school."
    assert [part["choices"][0]["finish_reason"] for part in parts] == [None] * (len(parts) - 1) + ["stop"]
    assert usage["usage"] == {"prompt_tokens": 4, "completion_tokens": 4, "total_tokens": 8}
    assert done == "[DONE]"
    assert wire.calls[-1] == "end"


async def test_a_streams_text_comes_while_it_is_written(complete: Ask, pod: TextPod) -> None:
    pod.behaviour = "hold"
    wire = complete(prompt="She goes.", stream=True)
    await eventually(lambda: pod.held)
    ((call, task),) = pod.held
    assert task.stream
    pod.write(call, "She ")
    await eventually(lambda: wire.events)
    assert wire.events[0]["choices"][0]["text"] == "She "
    assert not wire.over.is_set()
    pod.finish(call, GeneratedText("She goes.", Stopped.STOP, None, 2, 2))
    await wire.over.wait()
    assert [event["choices"][0]["text"] for event in wire.events[:-1]] == ["She ", "goes."]


async def test_a_stream_of_several_prompts_tells_them_apart(complete: Ask) -> None:
    prompts = ["One two three.", "Four five.", "Six."]
    wire = complete(prompt=prompts, stream=True)
    await wire.over.wait()
    texts = ["", "", ""]
    for event in wire.events[:-1]:
        (choice,) = event["choices"]
        texts[choice["index"]] += choice["text"]
    assert texts == prompts


async def test_a_pod_that_streams_nothing_streams_at_its_end(complete: Ask, pod: TextPod) -> None:
    pod.behaviour = "silent"
    wire = complete(prompt="She goes.", stream=True)
    await wire.over.wait()
    assert wire.events[0]["choices"][0]["text"] == "She goes."


async def test_a_refusal_by_a_pod_is_the_clients_in_openais_terms(complete: Ask, pod: TextPod) -> None:
    pod.behaviour = "refuse"
    pod.fault = Fault("prompt_too_long", "prompt has 600 tokens; at most 511 fit", 0, "prompt")
    for stream in (False, True):
        wire = complete(prompt=["a"], stream=stream)
        await wire.over.wait()
        assert (wire.error.status, wire.error.code, wire.error.param) == (
            400,
            "context_length_exceeded",
            "prompt[0]",
        )
        assert wire.error.message == "prompt[0] has 600 tokens; at most 511 fit."


async def test_the_first_text_that_fails_ends_the_others(complete: Ask, pod: TextPod) -> None:
    pod.behaviour = "hold"
    wire = complete(prompt=["a", "b", "c"])
    await eventually(lambda: len(pod.held) == 3)
    fault = Fault("unknown_token", "prompt: the model has no token 9", 0, "prompt")
    pod.held[1][0].fail(Status.INVALID, fault)
    await wire.over.wait()
    assert wire.error.code == "unknown_token"
    assert wire.error.param == "prompt[1]"
    await eventually(lambda: pod.gone == 2)
    assert pod.in_flight == 0


async def test_a_stream_that_breaks_off_ends_with_an_error(complete: Ask, pod: TextPod) -> None:
    pod.behaviour = "hold"
    wire = complete(prompt="One two three.", stream=True)
    await eventually(lambda: pod.held)
    call, _ = pod.held[0]
    pod.write(call, "One ")
    await eventually(lambda: wire.events)
    pod.lose(call)
    await wire.over.wait()
    assert wire.events[-1]["error"]["code"] == "pod_unavailable"
    assert "[DONE]" not in wire.events
    assert wire.calls[-1] == "end"
    assert len(pod.tasks) == 1


async def test_an_answer_that_is_none_is_a_failure_of_the_pod(complete: Ask, pod: TextPod) -> None:
    pod.behaviour = "nonsense"
    streamed = complete(prompt="a", stream=True)
    await streamed.over.wait()
    assert (streamed.error.status, streamed.error.code) == (502, "inference_failed")
    pod.behaviour = "garbage"
    whole = complete(prompt="a")
    await whole.over.wait()
    assert (whole.error.status, whole.error.code) == (502, "inference_failed")


async def test_a_client_that_leaves_takes_its_texts_along(complete: Ask, pod: TextPod) -> None:
    pod.behaviour = "hold"
    wire = complete(prompt=["a", "b"], stream=True)
    await eventually(lambda: len(pod.held) == 2)
    pod.write(pod.held[0][0], "a")
    await eventually(lambda: wire.events)
    assert wire.on_gone is not None
    wire.on_gone()
    await eventually(lambda: pod.gone == 2)
    assert not wire.over.is_set()


async def test_the_deadline_ends_a_text_midway(complete: Ask, pod: TextPod) -> None:
    pod.behaviour = "hold"
    wire = complete({b"x-request-deadline-ms": b"60"}, prompt="a")
    await wire.over.wait()
    assert (wire.error.status, wire.error.code) == (504, "deadline_exceeded")


async def test_priority_comes_from_the_field_or_the_header(complete: Ask, pod: TextPod) -> None:
    pod.behaviour = "hold"
    complete(prompt="field", priority="batch")
    complete({b"x-request-priority": b"batch"}, prompt="header")
    complete(prompt="neither")
    await eventually(lambda: len(pod.held) == 3)
    priorities = {
        task.prompt.text: call.priority.name for call, task in pod.held if isinstance(task.prompt, TextPrompt)
    }
    assert priorities == {"field": "BATCH", "header": "BATCH", "neither": "INTERACTIVE"}


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({b"x-request-deadline-ms": b"soon"}, "invalid_deadline"),
        ({b"x-request-priority": b"now"}, "invalid_priority"),
    ],
)
async def test_wrong_headers_are_refused(complete: Ask, headers: dict[bytes, bytes], code: str) -> None:
    with pytest.raises(ApiError) as caught:
        complete(headers, prompt="a")
    assert (caught.value.status, caught.value.code) == (400, code)


async def test_back_pressure_keeps_its_status(chat: Ask, pod: TextPod) -> None:
    pod.behaviour = "overload"
    for stream in (False, True):
        wire = chat(messages=TURNS, stream=stream)
        await wire.over.wait()
        assert (wire.error.status, wire.error.retry_after) == (429, 3)


async def test_a_mistake_of_our_own_ends_the_request(
    complete: Ask, pod: TextPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr("copydesk.gateway.openai.whole.WholeReply.finished", broken)
    wire = complete(prompt="a")
    await wire.over.wait()
    assert (wire.error.status, wire.error.code) == (500, "internal_error")
    assert "secret" not in wire.error.message
