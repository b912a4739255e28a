"""OpenAI's own client, and the commands of the documentation, against the real fleet with the real model."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from tests.fixtures.fleet import Fleet, running_fleet

MODEL = "gec-en"
WRONG = "She go to school every day."
RIGHT = "She goes to school every day."
API = Path(__file__).parents[2] / "docs" / "api.md"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, default_model: Path) -> Iterator[Fleet]:
    """A fleet as the documentation has it; that its model is prepared already spares the wait."""
    assert default_model.is_dir()
    with running_fleet(tmp_path_factory.mktemp("fleet"), "--pods", "1") as fleet:
        yield fleet


@pytest.fixture
async def client(fleet: Fleet) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{fleet.url}/v1", api_key="none", max_retries=0, timeout=60) as client:
        yield client


def said(text: str) -> list[ChatCompletionMessageParam]:
    return [{"role": "user", "content": text}]


async def streamed(client: openai.AsyncOpenAI, **arguments: Any) -> str:
    stream = await client.chat.completions.create(model=MODEL, stream=True, **arguments)
    return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])


async def test_a_chat_corrects_what_was_said_whole_and_streamed(client: openai.AsyncOpenAI) -> None:
    whole = await client.chat.completions.create(model=MODEL, messages=said(WRONG), temperature=0)
    assert whole.choices[0].message.content == RIGHT
    assert whole.choices[0].finish_reason == "stop"
    assert whole.usage is not None
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    assert await streamed(client, messages=said(WRONG), temperature=0) == RIGHT


async def test_a_seed_gives_the_same_text_again_in_company_and_streamed(client: openai.AsyncOpenAI) -> None:
    async def written(seed: int) -> str:
        answer = await client.completions.create(
            model=MODEL, prompt="Once upon a time", max_tokens=24, temperature=1, seed=seed
        )
        return answer.choices[0].text

    first = [await written(seed) for seed in range(4)]
    assert len(set(first)) > 1
    assert list(await asyncio.gather(*(written(seed) for seed in range(4)))) == first
    stream = await client.completions.create(
        model=MODEL, prompt="Once upon a time", max_tokens=24, temperature=1, seed=2, stream=True
    )
    assert "".join([chunk.choices[0].text async for chunk in stream]) == first[2]


async def test_stop_strings_and_limits_end_a_text(client: openai.AsyncOpenAI) -> None:
    limited = await client.completions.create(model=MODEL, prompt="The weather is", max_tokens=5, temperature=0)
    assert limited.choices[0].finish_reason == "length"
    assert limited.usage is not None
    assert limited.usage.completion_tokens == 5
    stopped = await client.chat.completions.create(
        model=MODEL, messages=said(WRONG), temperature=0, stop=[" school"]
    )
    assert stopped.choices[0].message.content == "She goes to"
    assert stopped.choices[0].finish_reason == "stop"
    assert stopped.choices[0].model_dump()["stop_reason"] == " school"


async def test_a_text_goes_on_beyond_its_end_where_that_is_wanted(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(
        model=MODEL, messages=said(WRONG), temperature=0, max_tokens=20, extra_body={"ignore_eos": True}
    )
    assert answer.usage is not None
    assert (answer.usage.completion_tokens, answer.choices[0].finish_reason) == (20, "length")
    assert (answer.choices[0].message.content or "").startswith(RIGHT)


async def test_what_does_not_fit_the_context_is_said_so(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as prompt:
        await client.completions.create(model=MODEL, prompt="word " * 2_000)
    assert (prompt.value.code, prompt.value.param) == ("context_length_exceeded", "prompt")
    with pytest.raises(openai.BadRequestError) as answer:
        await client.chat.completions.create(model=MODEL, messages=said(WRONG), max_completion_tokens=100_000)
    assert (answer.value.code, answer.value.param) == ("context_length_exceeded", "max_completion_tokens")
    with pytest.raises(openai.BadRequestError) as token:
        await client.completions.create(model=MODEL, prompt=[[5], [1_000_000]])
    assert (token.value.code, token.value.param) == ("unknown_token", "prompt[1]")


async def test_the_deadline_of_a_request_is_kept(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        await client.chat.completions.create(
            model=MODEL, messages=said(WRONG), temperature=0, extra_headers={"X-Request-Deadline-Ms": "1"}
        )
    assert caught.value.status_code in (429, 504)


async def test_many_streams_side_by_side_give_what_each_gives_alone(client: openai.AsyncOpenAI) -> None:
    texts = [WRONG, "He have two brother.", "I recieved you're letter yesterday.", "The weather is nice today."]
    alone = [await streamed(client, messages=said(text), temperature=0) for text in texts]
    assert alone[0] == RIGHT
    together = await asyncio.gather(
        *(streamed(client, messages=said(text), temperature=0) for _ in range(6) for text in texts)
    )
    assert together == alone * 6


def commands() -> list[str]:
    """The commands in the documentation of this API."""
    section = API.read_text().partition("\n## OpenAI's API\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"```console\n(.*?)```", section, re.DOTALL)
    return [command for block in blocks for command in re.split(r"^\$ ", block, flags=re.MULTILINE) if command]


@pytest.mark.parametrize("command", commands(), ids=lambda command: command.split("/v1")[1].split()[0])
def test_the_documented_commands_work_as_printed(fleet: Fleet, command: str) -> None:
    script = command.replace("http://127.0.0.1:8080", fleet.url).replace("curl -s", "curl --fail-with-body -s")
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    if "/v1/models" in command:
        assert MODEL in done.stdout
    elif '"stream": true' in command:
        assert done.stdout.endswith("data: [DONE]\n\n")
    else:
        assert json.loads(done.stdout)["choices"]


def test_the_documented_answer_has_the_shape_of_a_true_one(fleet: Fleet) -> None:
    section = API.read_text().partition("\n## OpenAI's API\n")[2]
    documented = json.loads(re.findall(r"```json\n(.*?)```", section, re.DOTALL)[0])
    script = commands()[0].replace("http://127.0.0.1:8080", fleet.url)
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=True)
    answer = json.loads(done.stdout)
    assert answer.keys() == documented.keys()
    assert answer["usage"] == documented["usage"]
    assert answer["choices"] == documented["choices"]
