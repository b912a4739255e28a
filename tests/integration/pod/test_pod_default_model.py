"""Texts of the default model, in 8-bit arithmetic, which is the same in any company."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import msgspec
import pytest

from copydesk.common.rpc import Channel
from copydesk.common.tasks import GenerateText, TextPrompt
from tests.fixtures.default_model import default_model_or_skip
from tests.integration.pod.running_pod import RunningPod, is_ready, pong_where, running_pod
from tests.integration.pod.text_client import stream, write

STORY = GenerateText(TextPrompt("Once upon a time, in Curaçao, there was"), 40, seed=3, temperature=0.9)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPod]:
    directory = default_model_or_skip()
    with running_pod(directory, tmp_path_factory.mktemp("pod") / "log", SLOTS=4, DTYPE="int8") as pod:
        pod.wait_ready()
        yield pod


@pytest.fixture
async def channel(pod: RunningPod) -> AsyncIterator[Channel]:
    channel = await pod.channel()
    await pong_where(channel, is_ready)
    yield channel
    await channel.close()


@pytest.mark.parametrize("changes", [{}, {"top_p": 0.9, "presence_penalty": 0.5}, {"temperature": 0.0}])
async def test_a_text_is_the_same_in_any_company_streamed_or_whole(
    channel: Channel, changes: dict[str, float]
) -> None:
    task = msgspec.structs.replace(STORY, **changes)
    alone = (await write(channel, task)).text
    others = [msgspec.structs.replace(STORY, seed=seed) for seed in range(10, 16)]
    answers = await asyncio.gather(
        stream(channel, task), *(write(channel, other) for other in others), write(channel, task)
    )
    assert answers[0].text.text == answers[-1].text.text == alone.text == "".join(answers[0].chunks)
    assert len({answer.text.text for answer in answers}) == 1 + len(others)


async def test_a_stop_string_across_tokens_ends_a_text(channel: Channel) -> None:
    whole = (await write(channel, STORY)).text.text
    stop = " ".join(whole.split(" ")[8:10])[1:]
    result = (await stream(channel, msgspec.structs.replace(STORY, stop=[stop]))).text
    assert (result.text, result.stop_reason) == (whole[: whole.index(stop)], stop)
