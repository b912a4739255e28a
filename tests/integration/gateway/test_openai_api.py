"""OpenAI's own client against the gateway as a process; the pods are the test's."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import openai
import pytest
import pytest_asyncio
from openai.types.chat import ChatCompletionMessageParam

from copydesk.common.rpc import Fault
from copydesk.common.tasks import GeneratedText, Stopped
from tests.fixtures.nats import NatsServer, running_nats
from tests.fixtures.text_pod import TextPod
from tests.integration.gateway.conftest import Discovery, GatewayProcess, Site, eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODEL = "gec-en"
TURNS: list[ChatCompletionMessageParam] = [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "She goes to school."}]},
]


class House:
    """Gateways that the tests share, each test with a pod of its own."""

    def __init__(self, site: Site, nats: NatsServer, discovery: Discovery) -> None:
        self._site = site
        self._nats = nats
        self._discovery = discovery
        self._pods = itertools.count(1)

    async def gateway(self, **settings: object) -> GatewayProcess:
        """Start a gateway."""
        return await self._site.gateway(self._nats.url, **settings)

    async def pod(self) -> TextPod:
        """Start a pod and announce it in the place of the one before."""
        pod = await TextPod(f"p{next(self._pods)}").start()
        assert isinstance(pod, TextPod)
        self._discovery.announce(pod.endpoint())
        return pod

    async def used(self, pod: TextPod, gateway: GatewayProcess, **headers: str) -> None:
        """Wait until the gateway uses this pod and no other."""
        plain = await self._site.client(gateway)

        async def alone() -> bool:
            pods = (await plain.get("/v1/fleet", headers=headers)).json()["pods"]
            return [(each["id"], each["eligible"]) for each in pods] == [(pod.name, True)]

        await eventually(alone)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    directory = tmp_path_factory.mktemp("house")
    async with AsyncExitStack() as stack:
        nats = stack.enter_context(running_nats(directory))
        site = Site(stack, directory)
        yield House(site, nats, await site.discovery(nats))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def standing(house: House) -> GatewayProcess:
    return await house.gateway()


@pytest_asyncio.fixture(loop_scope="module")
async def pod(house: House) -> AsyncIterator[TextPod]:
    pod = await house.pod()
    yield pod
    await pod.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def gateway(house: House, standing: GatewayProcess, pod: TextPod) -> GatewayProcess:
    """A gateway that is ready to use the pod."""
    await house.used(pod, standing)
    return standing


def client_of(gateway: GatewayProcess, key: str = "none") -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key, max_retries=0, timeout=20)


@pytest_asyncio.fixture(loop_scope="module")
async def client(gateway: GatewayProcess) -> AsyncIterator[openai.AsyncOpenAI]:
    async with client_of(gateway) as client:
        yield client


async def test_a_chat_is_answered(client: openai.AsyncOpenAI, pod: TextPod) -> None:
    answer = await client.chat.completions.create(
        model=MODEL, messages=TURNS, temperature=0, seed=7, max_completion_tokens=3, user="ana"
    )
    (choice,) = answer.choices
    assert choice.message.role == "assistant"
    assert choice.message.content == "She goes to "
    assert choice.finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.total_tokens == 7
    assert answer.id.startswith("chatcmpl-")
    assert (pod.tasks[0].temperature, pod.tasks[0].seed, pod.tasks[0].max_tokens) == (0, 7, 3)
    again: list[ChatCompletionMessageParam] = [*TURNS, choice.message.model_dump(), TURNS[1]]  # type: ignore[list-item]
    assert (await client.chat.completions.create(model=MODEL, messages=again)).choices


async def test_a_chat_is_streamed(client: openai.AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model=MODEL, messages=TURNS, stream=True, stream_options={"include_usage": True}
    )
    text, ends, roles, usage = "", [], [], None
    async for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            ends.append(choice.finish_reason)
            roles.append(choice.delta.role)
    assert text == "She goes to school."
    assert ends[-1] == "stop"
    assert set(ends[:-1]) <= {None}
    assert roles[0] == "assistant"
    assert usage is not None
    assert usage.total_tokens == 8


async def test_the_streaming_helper_of_the_client_puts_the_answer_together(client: openai.AsyncOpenAI) -> None:
    async with client.chat.completions.stream(model=MODEL, messages=TURNS) as stream:
        final = await stream.get_final_completion()
    assert final.choices[0].message.content == "She goes to school."
    assert final.choices[0].finish_reason == "stop"


async def test_each_kind_of_prompt_is_completed(client: openai.AsyncOpenAI) -> None:
    async def texts(prompt: str | list[str] | list[int] | list[list[int]]) -> list[str]:
        answer = await client.completions.create(model=MODEL, prompt=prompt)
        assert [choice.index for choice in answer.choices] == list(range(len(answer.choices)))
        return [choice.text for choice in answer.choices]

    assert await texts("Once upon") == ["Once upon"]
    assert await texts(["Once upon", "a time"]) == ["Once upon", "a time"]
    assert await texts([5, 6]) == ["<5> <6> "]
    assert await texts([[5], [6, 7]]) == ["<5> ", "<6> <7> "]


async def test_a_completion_is_streamed_with_what_vllm_adds(client: openai.AsyncOpenAI, pod: TextPod) -> None:
    stream = await client.completions.create(
        model=MODEL,
        prompt=["One two STOP three", "Four"],
        stream=True,
        stop=["STOP"],
        presence_penalty=0.5,
        extra_body={"top_k": 5, "min_p": 0.1, "repetition_penalty": 1.1, "stop_token_ids": [2]},
    )
    texts: dict[int, str] = {0: "", 1: ""}
    async for chunk in stream:
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == {0: "One two ", 1: "Four"}
    task = pod.tasks[0]
    assert (task.top_k, task.min_p, task.repetition_penalty, task.stop_ids) == (5, 0.1, 1.1, [2])
    assert (task.stop, task.presence_penalty) == (["STOP"], 0.5)


async def test_text_arrives_before_the_answer_is_complete(client: openai.AsyncOpenAI, pod: TextPod) -> None:
    pod.behaviour = "hold"
    stream = await _begun(client, pod)
    chunk = await anext(aiter(stream))
    assert chunk.choices[0].delta.content == "She "
    pod.finish(pod.held[0][0], GeneratedText("She goes.", Stopped.STOP, None, 4, 2))
    rest = [part.choices[0].delta.content async for part in stream]
    assert rest == ["goes."]


async def _begun(
    client: openai.AsyncOpenAI, pod: TextPod
) -> openai.AsyncStream[openai.types.chat.ChatCompletionChunk]:
    """A stream whose first word was sent."""
    asked = asyncio.create_task(client.chat.completions.create(model=MODEL, messages=TURNS, stream=True))

    async def held() -> bool:
        return bool(pod.held)

    await eventually(held)
    pod.write(pod.held[0][0], "She ")
    return await asked


async def test_a_client_that_leaves_a_stream_frees_its_place_in_the_pod(
    client: openai.AsyncOpenAI, pod: TextPod
) -> None:
    pod.behaviour = "hold"
    stream = await _begun(client, pod)
    await anext(aiter(stream))
    await stream.close()

    async def gone() -> bool:
        return pod.gone == 1 and pod.in_flight == 0

    await eventually(gone)


async def test_a_client_that_gives_up_waiting_frees_its_place_in_the_pod(
    client: openai.AsyncOpenAI, pod: TextPod
) -> None:
    pod.behaviour = "hold"
    with pytest.raises(openai.APITimeoutError):
        await client.with_options(timeout=0.3).completions.create(model=MODEL, prompt="Once")

    async def gone() -> bool:
        return pod.gone == 1 and pod.in_flight == 0

    await eventually(gone)


async def test_a_stream_that_breaks_off_raises_in_the_client(client: openai.AsyncOpenAI, pod: TextPod) -> None:
    pod.behaviour = "hold"
    stream = await _begun(client, pod)
    parts = aiter(stream)
    assert (await anext(parts)).choices[0].delta.content == "She "
    pod.lose(pod.held[0][0])
    with pytest.raises(openai.APIError) as caught:
        await anext(parts)
    assert caught.value.code == "pod_unavailable"


async def test_errors_are_the_ones_that_the_client_knows(client: openai.AsyncOpenAI, pod: TextPod) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        await client.completions.create(model="gpt-4o", prompt="Once")
    assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.BadRequestError) as refused:
        await client.chat.completions.create(model=MODEL, messages=TURNS, logprobs=True)
    assert (refused.value.code, refused.value.param) == ("unsupported_parameter", "logprobs")
    assert refused.value.type == "invalid_request_error"
    pod.behaviour = "refuse"
    pod.fault = Fault("context_exceeded", "max_tokens is 9000, too many", 0, "max_tokens")
    with pytest.raises(openai.BadRequestError) as long:
        await client.chat.completions.create(model=MODEL, messages=TURNS, max_tokens=9000)
    assert (long.value.code, long.value.param) == ("context_length_exceeded", "max_tokens")
    pod.behaviour = "overload"
    with pytest.raises(openai.RateLimitError) as full:
        await client.chat.completions.create(model=MODEL, messages=TURNS)
    assert full.value.code == "overloaded"
    assert full.value.response.headers["retry-after"] == "3"
    pod.behaviour = "unavailable"
    with pytest.raises(openai.InternalServerError) as away:
        await client.chat.completions.create(model=MODEL, messages=TURNS)
    assert away.value.status_code == 503


async def test_the_request_id_of_a_client_comes_back(client: openai.AsyncOpenAI) -> None:
    raw = await client.completions.with_raw_response.create(
        model=MODEL, prompt="Once", extra_headers={"X-Request-Id": "mine-1"}
    )
    assert raw.headers["x-request-id"] == "mine-1"
    assert raw.parse().id == "cmpl-mine-1"


async def test_the_model_is_listed_and_found(client: openai.AsyncOpenAI) -> None:
    (model,) = (await client.models.list()).data
    assert (model.id, model.object, model.owned_by) == (MODEL, "model", "copydesk")
    assert model.created > 1_600_000_000
    assert (await client.models.retrieve(MODEL)).id == MODEL
    with pytest.raises(openai.NotFoundError) as unknown:
        await client.models.retrieve("gpt-4o")
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("org/model")


async def test_a_key_is_asked_for_where_there_are_keys(house: House, pod: TextPod, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"ana:{hashlib.sha256(b'secret').hexdigest()}\n")
    gateway = await house.gateway(api_keys_file=keys)
    await house.used(pod, gateway, Authorization="Bearer secret")
    async with client_of(gateway, "secret") as client:
        assert (await client.completions.create(model=MODEL, prompt="Once")).choices[0].text == "Once"
    async with client_of(gateway, "wrong") as client:
        with pytest.raises(openai.AuthenticationError) as caught:
            await client.completions.create(model=MODEL, prompt="Once")
        assert caught.value.code == "invalid_api_key"


async def test_a_chunked_body_is_answered_the_same(gateway: GatewayProcess) -> None:
    """It comes another way, through ASGI."""

    async def body() -> AsyncIterator[bytes]:
        yield b'{"prompt": "Once '
        yield b'upon", "stream": true}'

    async with httpx.AsyncClient(base_url=gateway.url, timeout=20) as client:
        headers = {"Content-Type": "application/json"}
        response = await client.post("/v1/completions", content=body(), headers=headers)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.text.startswith("data: {")
    assert response.text.endswith("data: [DONE]\n\n")
