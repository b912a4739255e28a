from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from copydesk.common.rpc import Channel, Status
from copydesk.common.tasks import ChatMessage, ChatPrompt, GenerateText, Stopped, TextPrompt, TokenPrompt
from tests.integration.pod.running_pod import RunningPod, ask, fault, is_ready, pong_where, running_pod
from tests.integration.pod.text_client import Request, stream, write

SLOTS = 4
CONTEXT = 1024
PROMPT = TextPrompt("The weather is")
GREEDY = GenerateText(PROMPT, 60, temperature=0.0)
SAMPLED = GenerateText(PROMPT, 40, temperature=0.8, top_p=0.95, seed=5)


@pytest.fixture(scope="module")
def pod(talkative_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPod]:
    log = tmp_path_factory.mktemp("pod") / "log"
    with running_pod(talkative_model, log, SLOTS=SLOTS, CONTEXT=CONTEXT) as pod:
        pod.wait_ready()
        yield pod


@pytest.fixture
async def channel(pod: RunningPod) -> AsyncIterator[Channel]:
    channel = await pod.channel()
    await pong_where(channel, is_ready)
    yield channel
    await channel.close()


def first_stop(text: str, stops: list[str]) -> str:
    for end in range(len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            return max(complete, key=len)
    raise AssertionError("no stop string in it")


async def test_a_streamed_text_is_the_same_as_a_whole_one(channel: Channel) -> None:
    whole, streamed = await write(channel, GREEDY), await stream(channel, GREEDY)
    assert streamed.text == whole.text
    assert "".join(streamed.chunks) == whole.text.text
    assert len(streamed.chunks) > 5
    assert whole.chunks == []
    assert (whole.text.finish, whole.text.stop_reason) == (Stopped.LENGTH, None)
    assert whole.text.completion_tokens == 60
    assert 1 <= (whole.text.passes or 0) <= 60


@pytest.mark.parametrize("place", [10, 25, 40])
async def test_a_stop_string_cuts_the_text_before_it_streamed_or_not(channel: Channel, place: int) -> None:
    text = (await write(channel, GREEDY)).text.text
    stops = [text[place : place + 4], "never written"]
    stop = first_stop(text, stops)
    task = msgspec.structs.replace(GREEDY, stop=stops)
    whole, streamed = await write(channel, task), await stream(channel, task)
    assert whole.text.text == text[: text.index(stop)] == "".join(streamed.chunks) == streamed.text.text
    for result in (whole.text, streamed.text):
        assert (result.finish, result.stop_reason) == (Stopped.STOP, stop)
        assert result.completion_tokens == whole.text.completion_tokens < 60


async def test_a_stop_string_frees_the_engine_at_once(channel: Channel) -> None:
    text = (await write(channel, GREEDY)).text.text
    endless = GenerateText(PROMPT, temperature=0.0, stop=[text[3:6]])
    answers = await asyncio.gather(*(write(channel, endless) for _ in range(3 * SLOTS)))
    assert {answer.text.finish for answer in answers} == {Stopped.STOP}
    await pong_where(channel, lambda pong: pong.load.running == pong.load.queued == 0)


async def test_stop_ids_end_a_text_and_are_named(channel: Channel) -> None:
    whole = (await write(channel, GREEDY)).text
    result = (await write(channel, msgspec.structs.replace(GREEDY, stop_ids=list(range(3, 67))))).text
    assert result.finish is Stopped.STOP
    assert result.stop_reason in range(3, 67)
    assert result.completion_tokens < 60
    assert whole.text.startswith(result.text.rstrip("\ufffd"))


async def test_a_seed_gives_the_same_text_alone_and_in_company(channel: Channel) -> None:
    alone = (await write(channel, SAMPLED)).text.text
    company = [
        msgspec.structs.replace(SAMPLED, seed=seed, temperature=1.2) for seed in range(100, 100 + 2 * SLOTS)
    ]
    requests = [SAMPLED, *company[:SLOTS], SAMPLED, *company[SLOTS:], SAMPLED]
    texts = [answer.text.text for answer in await asyncio.gather(*(write(channel, task) for task in requests))]
    assert texts[0] == texts[SLOTS + 1] == texts[-1] == alone
    assert len(set(texts)) == 1 + len(company)


async def test_without_a_seed_texts_differ(channel: Channel) -> None:
    task = msgspec.structs.replace(SAMPLED, seed=None)
    texts = {answer.text.text for answer in await asyncio.gather(*(write(channel, task) for _ in range(6)))}
    assert len(texts) == 6


async def test_penalties_keep_a_text_from_repeating_itself(channel: Channel) -> None:
    penalised = msgspec.structs.replace(
        GREEDY, frequency_penalty=2.0, presence_penalty=2.0, repetition_penalty=5.0
    )
    plain, varied = await write(channel, GREEDY), await write(channel, penalised)
    assert len(set(varied.text.text)) > len(set(plain.text.text))
    assert (await write(channel, penalised)).text.text == varied.text.text


@pytest.mark.parametrize("way", ["cancel", "disconnect"])
async def test_whoever_goes_frees_the_slot(pod: RunningPod, channel: Channel, way: str) -> None:
    task = GenerateText(PROMPT, temperature=0.0, stream=True)
    leaving = await pod.channel()
    request = Request(leaving, task)
    await request.began.wait()
    if way == "cancel":
        request.cancel()
    else:
        await leaving.close()
    await pong_where(channel, lambda pong: pong.load.running == 0)
    assert len(request.chunks) < CONTEXT - 100
    await leaving.close()


async def test_a_text_may_fill_the_context(channel: Channel) -> None:
    result = (await write(channel, GenerateText(PROMPT, temperature=0.0))).text
    assert result.finish is Stopped.LENGTH
    assert result.prompt_tokens + result.completion_tokens == CONTEXT


async def test_chats_and_token_prompts_are_answered(channel: Channel) -> None:
    chat = ChatPrompt([ChatMessage("user", " The weather is ")])
    rendered = TokenPrompt([1, *range(40, 50), 2])
    for prompt in (chat, rendered):
        result = (await write(channel, GenerateText(prompt, 5, temperature=0.0))).text
        assert result.completion_tokens == 5


async def test_a_deadline_ends_a_text(channel: Channel) -> None:
    answer = await write(channel, GenerateText(PROMPT, temperature=0.0), deadline_ms=30)
    assert answer.response.status in {Status.DEADLINE_EXCEEDED, Status.OVERLOADED}


@pytest.mark.parametrize(
    ("fields", "code", "parameter"),
    [
        ({"n": 2}, "unsupported_parameter", "n"),
        ({"temperature": -1.0}, "invalid_sampling", "temperature"),
        ({"top_p": 0.0}, "invalid_sampling", "top_p"),
        ({"stop": [""]}, "invalid_parameter", "stop[0]"),
        ({"max_tokens": 0}, "invalid_parameter", "max_tokens"),
        ({"max_tokens": CONTEXT}, "context_exceeded", "max_tokens"),
        ({"prompt": TextPrompt("word " * 2000)}, "prompt_too_long", "prompt"),
        ({"prompt": ChatPrompt([])}, "empty_prompt", "messages"),
        ({"prompt": ChatPrompt([ChatMessage("robot", "x")])}, "unknown_role", "messages[0].role"),
    ],
)
async def test_what_cannot_be_served_is_invalid_and_says_which_parameter(
    channel: Channel, fields: dict[str, Any], code: str, parameter: str
) -> None:
    response = (await write(channel, GenerateText(**{"prompt": PROMPT, **fields}))).response
    assert fault(response) == (Status.INVALID, code)
    assert response.fault is not None
    assert response.fault.parameter == parameter


async def test_what_is_no_task_is_invalid(channel: Channel) -> None:
    for payload in (msgspec.msgpack.encode(["dance", "x"]), msgspec.msgpack.encode(["generate_text", 5])):
        response = await channel.call(payload, deadline_ms=5_000)
        assert fault(response) == (Status.INVALID, "bad_payload")


async def test_texts_and_corrections_are_served_side_by_side(channel: Channel) -> None:
    written, corrected = await asyncio.gather(
        write(channel, GREEDY), channel.call(ask("This stays."), deadline_ms=60_000)
    )
    assert written.text.completion_tokens == 60
    assert corrected.status is Status.OK
