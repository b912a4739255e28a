"""Pods that speak only OpenAI-style HTTP: what they are asked, what is made of it, and what goes wrong."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.common.messages import EndpointState
from copydesk.common.rpc import Response, RpcConnectError, RpcHandshakeError, RpcPingError, Status, TcpAddress
from copydesk.common.tasks import (
    ChatMessage,
    ChatPrompt,
    CorrectedSentence,
    CorrectSentence,
    GeneratedText,
    GenerateText,
    Outcome,
    Stopped,
    Task,
    TextChunk,
    TextPrompt,
    TokenPrompt,
)
from copydesk.gateway.faults import ApiError
from copydesk.gateway.http_pod.channel import HttpChannel
from copydesk.gateway.http_pod.connection import HttpConnection
from copydesk.gateway.http_pod.questions import corrected, question
from copydesk.gateway.http_pod.readers import EventReader, Unreadable, WholeReader, refusal
from copydesk.gateway.service import Gateway
from tests.fixtures.openai_server import OpenAiServer
from tests.unit.gateway.conftest import Desk, eventually, snapshot
from tests.unit.gateway.wire import Wire


@pytest.fixture
async def server() -> AsyncIterator[OpenAiServer]:
    server = await OpenAiServer().start()
    yield server
    await server.stop()


async def opened(server: OpenAiServer, **arguments: Any) -> HttpChannel:
    return await HttpChannel.open(TcpAddress("127.0.0.1", server.port), model="gec-en", **arguments)


@pytest.fixture
async def channel(server: OpenAiServer) -> AsyncIterator[HttpChannel]:
    channel = await opened(server)
    yield channel
    await channel.close()


class Ask:
    """One task sent, and what came of it."""

    def __init__(self, channel: HttpChannel, task: Task, deadline_ms: int = 5_000) -> None:
        self.parts: list[str] = []
        self.response: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self.id = channel.send(
            msgspec.msgpack.encode(task),
            deadline_ms=deadline_ms,
            on_reply=self.response.set_result,
            on_chunk=lambda raw: self.parts.append(msgspec.msgpack.decode(raw, type=TextChunk).text),
        )

    async def answer(self) -> Any:
        response = await self.response
        assert response.status is Status.OK, response.fault
        return msgspec.msgpack.decode(response.payload, type=GeneratedText | CorrectedSentence)

    async def fault(self) -> tuple[Status, str]:
        response = await self.response
        assert response.fault is not None
        return response.status, response.fault.code


class Heard:
    """Whoever asked on a connection; `then` is what it does when its answer is complete."""

    def __init__(self) -> None:
        self.body = b""
        self.ended = 0
        self.then: Callable[[], object] = lambda: None

    def on_head(self, status: int, headers: dict[bytes, bytes]) -> None:
        del status, headers

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_complete(self) -> None:
        self.ended += 1
        self.then()

    def on_lost(self, *, begun: bool) -> None:
        del begun


def text(prompt: str, **parameters: Any) -> GenerateText:
    return GenerateText(TextPrompt(prompt), **parameters)


def body_of(task: Task) -> Any:
    return msgspec.json.decode(question(task, "m").body)


def test_a_text_is_asked_for_with_what_differs_from_the_defaults() -> None:
    assert body_of(text("Once", max_tokens=5)) == {
        "model": "m",
        "prompt": "Once",
        "max_tokens": 5,
        "temperature": 1.0,
    }
    everything = body_of(
        GenerateText(
            TokenPrompt([5, 6]),
            temperature=0.5,
            top_p=0.9,
            top_k=4,
            min_p=0.1,
            seed=0,
            presence_penalty=1.0,
            frequency_penalty=-1.0,
            repetition_penalty=1.5,
            stop=["x"],
            stop_ids=[2],
            stream=True,
            ignore_eos=True,
        )
    )
    assert everything == {
        "model": "m",
        "prompt": [5, 6],
        "max_tokens": None,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 4,
        "min_p": 0.1,
        "seed": 0,
        "presence_penalty": 1.0,
        "frequency_penalty": -1.0,
        "repetition_penalty": 1.5,
        "stop": ["x"],
        "stop_token_ids": [2],
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_a_chat_is_asked_with_its_roles_and_a_sentence_as_what_a_user_says() -> None:
    chat = GenerateText(
        ChatPrompt([ChatMessage("system", "Be brief."), ChatMessage("user", "Hi.")]), temperature=0
    )
    assert question(chat, "m").path == "/v1/chat/completions"
    assert body_of(chat) == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi."}],
        "temperature": 0,
    }
    assert body_of(CorrectSentence("She go.")) == {
        "model": "m",
        "messages": [{"role": "user", "content": "She go."}],
        "temperature": 0,
        "max_tokens": 19,
    }


@pytest.mark.parametrize(
    ("written", "finish", "outcome", "kept"),
    [
        ("She goes to school.", Stopped.STOP, Outcome.CORRECTED, "She goes to school."),
        (" She goes\nto school. ", Stopped.STOP, Outcome.CORRECTED, "She goes to school."),
        ("", Stopped.STOP, Outcome.CORRECTED, "She go to school."),
        ("She goes to", Stopped.LENGTH, Outcome.TRUNCATED, "She go to school."),
        ("As an AI I cannot help.", Stopped.STOP, Outcome.DISSIMILAR, "She go to school."),
        ("She goes to schoo\ufffd", Stopped.STOP, Outcome.DISSIMILAR, "She go to school."),
    ],
)
def test_a_correction_is_believed_or_the_sentence_stays(
    written: str, finish: Stopped, outcome: Outcome, kept: str
) -> None:
    answer = GeneratedText(written, finish, None, 5, 4)
    assert corrected("She go to school.", answer) == CorrectedSentence(kept, outcome, 5, 4)


EVENTS = (
    b'data: {"choices": [{"delta": {"role": "assistant", "content": ""}}]}\r\n\r\n'
    b": a comment\n\n"
    b'data: {"choices": [{"delta": {"content": "Gr\xc3\xbc"}}]}\n\n'
    b'data:{"choices": [{"delta": {"content": "n."}, "finish_reason": "length"}], "usage": null}\n\n'
    b'data: {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}\n\n'
    b"data: [DONE]\n\n"
)


@given(st.lists(st.integers(0, len(EVENTS)), max_size=8))
def test_events_are_read_in_whatever_pieces_they_come(cuts: list[int]) -> None:
    reader = EventReader()
    borders = [0, *sorted(cuts), len(EVENTS)]
    parts = [reader.feed(EVENTS[start:end]) for start, end in itertools.pairwise(borders)]
    assert "".join(parts) == "Gr\u00fcn."
    assert reader.end() == GeneratedText("Gr\u00fcn.", Stopped.LENGTH, None, 3, 2)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"choices": []}', b'{"choices": [{"text": "a", "finish_reason": "abort"}]}']
)
def test_an_answer_that_is_none_is_unreadable(body: bytes) -> None:
    reader = WholeReader()
    reader.feed(body)
    with pytest.raises(Unreadable):
        reader.end()


def test_a_stream_that_ends_or_fails_midway_is_unreadable() -> None:
    reader = EventReader()
    reader.feed(b'data: {"choices": [{"text": "a"}]}\n\n')
    with pytest.raises(Unreadable):
        reader.end()
    with pytest.raises(Unreadable, match="out of memory"):
        reader.feed(b'data: {"error": {"message": "out of memory"}}\n\n')


@pytest.mark.parametrize(
    ("said", "chat", "code", "parameter"),
    [
        ("maximum context length is 512 tokens, your request has 600", False, "prompt_too_long", "prompt"),
        ("maximum context length is 512 tokens, your request has 600", True, "prompt_too_long", "messages"),
        ("'max_tokens' is too large: 900. maximum context length is 512", True, "context_exceeded", "max_tokens"),
        ("max_tokens=900 cannot be greater than max_model_len=512.", False, "context_exceeded", "max_tokens"),
        ("Token id 10000000 is out of vocabulary", False, "unknown_token", "prompt"),
        ("top_k must be positive", True, "invalid_parameter", "top_k"),
    ],
)
def test_what_a_server_refuses_is_told_in_the_words_of_pods(
    said: str, chat: bool, code: str, parameter: str
) -> None:
    body = msgspec.json.encode({"error": {"message": said, "param": "top_k"}})
    status, fault = refusal(400, {}, body, chat=chat)
    assert (status, fault.code, fault.parameter) == (Status.INVALID, code, parameter)


async def test_the_server_says_what_it_serves(server: OpenAiServer, channel: HttpChannel) -> None:
    assert channel.peer.peer == "served-name"
    assert channel.peer.capacity == 64
    assert (await channel.ping(5)).state is EndpointState.READY
    await Ask(channel, text("Once")).answer()
    assert server.received[0][1]["model"] == "served-name"


async def test_a_text_comes_back_whole_and_in_parts(channel: HttpChannel) -> None:
    whole = Ask(channel, text("One two three", max_tokens=2))
    assert await whole.answer() == GeneratedText("One two ", Stopped.LENGTH, None, 3, 2)
    assert whole.parts == []
    streamed = Ask(channel, text("One two three", stream=True))
    assert await streamed.answer() == GeneratedText("One two three", Stopped.STOP, None, 3, 3)
    assert "".join(streamed.parts) == "One two three"


async def test_connections_are_used_again_and_shared_by_none(server: OpenAiServer, channel: HttpChannel) -> None:
    for _ in range(5):
        await Ask(channel, text("Once")).answer()
    assert server.connections == 1
    asked = [Ask(channel, text(f"Number {number}")) for number in range(8)]
    assert [(await ask.answer()).text for ask in asked] == [f"Number {number}" for number in range(8)]
    assert server.connections <= 8


@pytest.mark.parametrize("behaviour", ["last", "stray"])
async def test_a_server_that_closes_after_its_answer_is_no_failure(
    server: OpenAiServer, channel: HttpChannel, behaviour: str
) -> None:
    server.behaviour = behaviour
    for _ in range(4):
        assert (await Ask(channel, text("Once upon")).answer()).text == "Once upon"


@pytest.mark.parametrize(
    ("behaviour", "status", "code"),
    [
        ("full", Status.OVERLOADED, "queue_full"),
        ("starting", Status.OVERLOADED, "queue_full"),
        ("broken", Status.INTERNAL, "server_failed"),
        ("too_long", Status.INVALID, "prompt_too_long"),
        ("wrong", Status.INVALID, "invalid_parameter"),
        ("garbage", Status.INTERNAL, "unreadable_answer"),
        ("halt", Status.UNAVAILABLE, "engine_unavailable"),
        ("drop", Status.UNAVAILABLE, "engine_unavailable"),
    ],
)
async def test_what_goes_wrong_has_the_status_that_rpc_pods_give_it(
    server: OpenAiServer, channel: HttpChannel, behaviour: str, status: Status, code: str
) -> None:
    server.behaviour = behaviour
    assert await Ask(channel, text("Once")).fault() == (status, code)
    assert channel.in_flight == 0
    assert channel.load.running == 0
    server.behaviour = "repeat"
    assert (await Ask(channel, text("Once")).answer()).text == "Once"


async def test_an_answer_that_nobody_asked_for_is_nobody_elses(server: OpenAiServer, channel: HttpChannel) -> None:
    server.behaviour = "twice"
    assert (await Ask(channel, text("Once")).answer()).text == "Unasked."
    server.behaviour = "repeat"
    for number in range(3):
        assert (await Ask(channel, text(f"Number {number}")).answer()).text == f"Number {number}"


async def test_a_second_answer_at_once_is_not_that_of_the_request_which_the_first_lets_in() -> None:
    transport = Wire()
    made = HttpConnection(lambda connection: None)
    made.connection_made(transport)
    first, second = Heard(), Heard()
    first.then = lambda: made.ask(b"second", second) if made.open else None
    made.ask(b"first", first)
    made.data_received(
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n2"
    )
    assert (first.body, first.ended) == (b"1", 1)
    assert (second.body, second.ended) == (b"", 0)
    assert transport.aborted


async def test_back_pressure_says_when_to_return(server: OpenAiServer, channel: HttpChannel) -> None:
    server.behaviour = "full"
    response = await Ask(channel, text("Once")).response
    assert response.fault is not None
    assert response.fault.retry_after_ms == 7_000


async def test_a_sentence_that_does_not_fit_comes_back_as_it_was(
    server: OpenAiServer, channel: HttpChannel
) -> None:
    server.behaviour = "too_long"
    answer = await Ask(channel, CorrectSentence("She go.")).answer()
    assert answer == CorrectedSentence("She go.", Outcome.TOO_LONG, 0, 0)


async def test_a_request_that_is_given_up_closes_its_connection(
    server: OpenAiServer, channel: HttpChannel
) -> None:
    server.behaviour = "hang"
    ask = Ask(channel, text("Once"))
    await eventually(lambda: server.received)
    channel.cancel(ask.id)
    await eventually(lambda: server.gone == 1)
    assert not ask.response.done()
    assert channel.load.running == 0


async def test_a_deadline_ends_a_request_and_closes_its_connection(
    server: OpenAiServer, channel: HttpChannel
) -> None:
    server.behaviour = "hang"
    assert await Ask(channel, text("Once"), 50).fault() == (Status.DEADLINE_EXCEEDED, "deadline_exceeded")
    await eventually(lambda: server.gone == 1)


async def test_a_server_that_is_gone_ends_the_channel_and_all_on_it(server: OpenAiServer) -> None:
    closed: list[HttpChannel] = []
    channel = await opened(server, on_close=closed.append)
    server.behaviour = "hang"
    waiting = Ask(channel, text("Once"))
    await eventually(lambda: server.received)
    await server.stop()
    assert (await waiting.fault())[0] is Status.UNAVAILABLE
    assert await Ask(channel, text("Twice")).fault() == (Status.UNAVAILABLE, "connection_lost")
    assert closed == [channel]
    assert channel.closed
    with pytest.raises(RpcPingError):
        await channel.ping(1)
    await channel.close()


async def test_who_does_not_answer_as_such_a_server_is_no_pod(server: OpenAiServer) -> None:
    server.behaviour = "starting"
    with pytest.raises(RpcHandshakeError):
        await opened(server)
    await server.stop()
    with pytest.raises(RpcConnectError):
        await opened(server)


async def test_the_token_is_the_key(server: OpenAiServer) -> None:
    server.key = "secret"
    with pytest.raises(RpcHandshakeError):
        await opened(server, token="wrong")
    channel = await opened(server, token="secret")
    assert (await Ask(channel, text("Once")).answer()).text == "Once"
    await channel.close()


async def test_a_gateway_uses_it_as_any_pod(desk: Desk, server: OpenAiServer) -> None:
    gateway = await desk.gateway()
    gateway.fleet.apply(snapshot(server.endpoint(capacity=8)))
    await eventually(lambda: gateway.fleet.eligible)
    assert await _generated(gateway, text("Once upon")) == "Once upon"
    server.behaviour = "drop"
    outcome = await _submitted(gateway, text("Once upon"))
    assert isinstance(outcome, ApiError)
    assert outcome.status == 503
    server.behaviour = "repeat"
    await eventually(lambda: gateway.fleet.eligible)
    assert await _generated(gateway, text("Once upon")) == "Once upon"
    assert gateway.fleet.pods["http-1"].ledger.in_flight == 0


async def _submitted(gateway: Gateway, task: Task) -> Any:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()
    gateway.dispatcher.submit(msgspec.msgpack.encode(task), loop.time() + 5, done.set_result)
    return await done


async def _generated(gateway: Gateway, task: Task) -> str:
    outcome = await _submitted(gateway, task)
    assert not isinstance(outcome, ApiError), outcome
    return msgspec.msgpack.decode(outcome.payload, type=GeneratedText).text
