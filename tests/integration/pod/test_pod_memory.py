"""What a pod with the default model takes of a person's memory."""

import asyncio
from collections.abc import Iterator

import psutil
import pytest

from copydesk.common.rpc import Status
from copydesk.common.tasks import GenerateText, TokenPrompt
from tests.fixtures.default_model import default_model_or_skip
from tests.fixtures.sentences import sentences
from tests.integration.pod.running_pod import RunningPod, ask, is_ready, pong_where, running_pod
from tests.integration.pod.text_client import write

LIMIT_MB = 700
SLOTS, CONTEXT = 32, 512
REQUESTS = 2 * SLOTS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPod]:
    """A pod with the settings that it has by default, but for the address."""
    directory = default_model_or_skip()
    with running_pod(directory, tmp_path_factory.mktemp("pod") / "log", DTYPE="auto", SLOTS=SLOTS) as pod:
        if pod.events("compiled_library_missing"):
            pytest.skip("the 8-bit engine cannot be built here")
        pod.wait_ready()
        yield pod


def resident_mb(pod: RunningPod) -> tuple[float, float]:
    """Sum up all processes of the pod: resident memory, and the same with what they share counted once."""
    supervisor = psutil.Process(pod.process.pid)
    memory = [process.memory_full_info() for process in (supervisor, *supervisor.children(recursive=True))]
    return sum(each.rss for each in memory) / 1e6, sum(each.pss for each in memory) / 1e6


async def test_a_pod_that_has_corrected_texts_in_all_its_slots_stays_below_the_limit(pod: RunningPod) -> None:
    channel = await pod.channel()
    await pong_where(channel, is_ready)
    texts = [" ".join(sentences(8, seed=seed)) for seed in range(REQUESTS)]
    answers = await asyncio.gather(*(channel.call(ask(text), deadline_ms=120_000) for text in texts))
    assert {response.status for response in answers} == {Status.OK}
    resident, proportional = resident_mb(pod)
    assert proportional <= resident < LIMIT_MB, f"resident {resident:.0f} MB, proportional {proportional:.0f} MB"
    await channel.close()


async def test_a_pod_whose_requests_fill_their_whole_context_stays_below_it_too(pod: RunningPod) -> None:
    channel = await pod.channel()
    await pong_where(channel, is_ready)
    prompts = [[1000 + (place * slot) % 40_000 for place in range(CONTEXT - 2)] for slot in range(SLOTS)]
    tasks = [GenerateText(TokenPrompt(prompt), max_tokens=2) for prompt in prompts]
    answers = await asyncio.gather(*(write(channel, task, deadline_ms=240_000) for task in tasks))
    assert {answer.text.prompt_tokens for answer in answers} == {CONTEXT - 2}
    resident, proportional = resident_mb(pod)
    assert proportional <= resident < LIMIT_MB, f"resident {resident:.0f} MB, proportional {proportional:.0f} MB"
    await channel.close()


async def test_neither_does_it_grow_when_short_requests_follow_long_ones_into_their_slots(pod: RunningPod) -> None:
    channel = await pod.channel()
    await pong_where(channel, is_ready)
    for wave in (16, 8, 4, 2):
        long = [
            GenerateText(TokenPrompt([1000 + place for place in range(480)]), max_tokens=2) for _ in range(wave)
        ]
        short = [GenerateText(TokenPrompt([2000 + place for place in range(20)]), max_tokens=200) for _ in long]
        answers = await asyncio.gather(*(write(channel, task, deadline_ms=240_000) for task in long + short))
        assert {answer.text.prompt_tokens for answer in answers} == {480, 20}
    resident, proportional = resident_mb(pod)
    assert proportional <= resident < LIMIT_MB, f"resident {resident:.0f} MB, proportional {proportional:.0f} MB"
    await channel.close()
