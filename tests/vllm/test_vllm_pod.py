"""A whole pod over vLLM, asked as a gateway asks it: answers, refusals and ends are those of the native engine.

The tests share one pod, and those that kill something come last: each start of vLLM takes half a minute at least.
"""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from copydesk.common.rpc import Channel, Response, Status
from copydesk.common.tasks import GeneratedText, GenerateText, Stopped, TextPrompt, TokenPrompt
from tests.integration.pod.running_pod import (
    RunningPod,
    answer,
    ask,
    eventually,
    fault,
    is_ready,
    pong_where,
)
from tests.integration.pod.text_client import Request, stream, write
from tests.vllm.conftest import vllm_pod
from tests.vllm.vllm_processes import called, end, group_of, times_ready, wait_ready

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(2000)]

PROMPTS = ("The cat", "in the is on", "a" * 200, "He ask her a an the the the the the the", "\x00\N{SNOWMAN}", "!")
LONG = GenerateText(TextPrompt("On and on:"), 2000, temperature=1.0, seed=1, ignore_eos=True, stream=True)
"""Drawn, so that no guess comes true: a random model's likeliest tokens soon repeat, and come by the dozen."""

DEADLINE_MS = 300_000


def greedy(prompt: str, tokens: int = 40) -> GenerateText:
    return GenerateText(TextPrompt(prompt), tokens, temperature=0.0)


@pytest.fixture(scope="module")
def pod(vllm_python: str, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPod]:
    log = tmp_path_factory.mktemp("vllm") / "log"
    # On all cores, vLLM's processes keep the worker waiting until a text is complete.
    with vllm_pod(vllm_python, tiny_model, log, DTYPE="float32", THREADS=1) as pod:
        wait_ready(pod)
        yield pod


async def connected(pod: RunningPod) -> Channel:
    channel = await pod.channel()
    await pong_where(channel, is_ready)
    return channel


async def free(channel: Channel) -> None:
    """Wait until nothing runs any more."""
    await pong_where(channel, lambda pong: pong.load.running + pong.load.queued == 0)


async def written(pod: RunningPod, tasks: list[GenerateText]) -> list[GeneratedText]:
    channel = await connected(pod)
    texts = []
    for task in tasks:  # one by one, so that it is known which sums each was computed with
        texts.append((await write(channel, task, deadline_ms=DEADLINE_MS)).text)
    await channel.close()
    return texts


async def test_greedy_texts_are_those_of_the_native_engine(pod: RunningPod, native_pod: RunningPod) -> None:
    tasks = [greedy(prompt) for prompt in PROMPTS]
    ours, native = await written(pod, tasks), await written(native_pod, tasks)
    for ours_, native_ in zip(ours, native, strict=True):
        assert ours_.text == native_.text
        assert ours_.finish == native_.finish
        assert (ours_.prompt_tokens, ours_.completion_tokens) == (native_.prompt_tokens, native_.completion_tokens)


async def test_corrections_are_those_of_the_native_engine(pod: RunningPod, native_pod: RunningPod) -> None:
    for sentence in ("He go to school.", "I has two brother and one sister.", "The the the the."):
        found = []
        for one in (pod, native_pod):
            channel = await connected(one)
            found.append(answer(await channel.call(ask(sentence), deadline_ms=DEADLINE_MS)))
            await channel.close()
        assert found[0] == found[1]


async def test_guesses_are_made_counted_and_change_nothing(pod: RunningPod, native_pod: RunningPod) -> None:
    task = GenerateText(TokenPrompt([1, 40, 41, 42, 43] * 20), 200, temperature=0.0, ignore_eos=True)
    (ours,), (native,) = await written(pod, [task]), await written(native_pod, [task])
    assert ours.text == native.text
    assert ours.completion_tokens == 200
    assert ours.drafted is not None
    assert ours.accepted is not None
    assert ours.passes is not None
    assert ours.drafted >= ours.accepted >= 0
    assert 200 - ours.accepted <= ours.passes <= 200


async def test_a_streamed_text_is_the_text_in_pieces(pod: RunningPod) -> None:
    channel = await connected(pod)
    whole = await write(channel, greedy("The cat"), deadline_ms=DEADLINE_MS)
    pieces = await stream(channel, greedy("The cat"))
    assert "".join(pieces.chunks) == pieces.text.text == whole.text.text
    assert len(pieces.chunks) > 5
    await channel.close()


async def test_a_stop_id_ends_the_text_and_is_named(pod: RunningPod, native_pod: RunningPod) -> None:
    task = GenerateText(TextPrompt("The cat"), 200, temperature=0.0, stop_ids=list(range(3, 40)), ignore_eos=True)
    (ours,), (native,) = await written(pod, [task]), await written(native_pod, [task])
    assert ours.finish is Stopped.STOP
    assert (ours.text, ours.stop_reason, ours.completion_tokens) == (
        native.text,
        native.stop_reason,
        native.completion_tokens,
    )


async def test_the_same_seed_writes_the_same_text_and_another_another(pod: RunningPod) -> None:
    tasks = [GenerateText(TextPrompt("The cat"), 30, seed=seed, ignore_eos=True) for seed in (7, 7, 8, 2**64 - 1)]
    first, again, other, largest = await written(pod, tasks)
    assert first.text == again.text != other.text
    assert largest.completion_tokens == 30


async def test_penalties_are_heeded(pod: RunningPod, native_pod: RunningPod) -> None:
    task = GenerateText(
        TextPrompt("the the the"),
        30,
        temperature=0.0,
        repetition_penalty=1.7,
        presence_penalty=1.5,
        ignore_eos=True,
    )
    (ours,), (native,) = await written(pod, [task]), await written(native_pod, [task])
    assert ours.text == native.text


async def test_what_vllm_does_not_do_is_refused_by_its_name(pod: RunningPod) -> None:
    channel = await connected(pod)
    refused = await write(channel, GenerateText(TextPrompt("The"), 5, min_p=0.2), deadline_ms=DEADLINE_MS)
    assert fault(refused.response) == (Status.INVALID, "invalid_sampling")
    assert refused.response.fault is not None
    assert "DRAFT=off" in refused.response.fault.message
    await channel.close()


async def test_a_cancelled_request_frees_its_place(pod: RunningPod) -> None:
    channel = await connected(pod)
    request = Request(channel, LONG, deadline_ms=DEADLINE_MS)
    await request.began.wait()
    pong = await pong_where(channel, lambda pong: pong.load.running == 1)
    assert pong.load.capacity == 2
    assert pong.load.step_ms > 0.0
    request.cancel()
    await free(channel)
    await channel.close()


async def test_a_deadline_ends_a_request_midway(pod: RunningPod) -> None:
    channel = await connected(pod)
    late = await write(channel, LONG, deadline_ms=500)
    assert late.response.status is Status.DEADLINE_EXCEEDED
    await free(channel)
    await channel.close()


async def test_more_than_may_wait_are_refused_with_a_time_to_come_back(pod: RunningPod) -> None:
    channel = await connected(pod)
    taken = [Request(channel, LONG, deadline_ms=DEADLINE_MS) for _ in range(4)]
    await pong_where(channel, lambda pong: (pong.load.running, pong.load.queued) == (2, 2))
    refused = await write(channel, greedy("One too many"), deadline_ms=DEADLINE_MS)
    assert fault(refused.response) == (Status.OVERLOADED, "queue_full")
    assert refused.response.fault is not None
    assert refused.response.fault.retry_after_ms
    for request in taken:
        request.cancel()
    await free(channel)
    assert (await write(channel, greedy("Room again"), deadline_ms=DEADLINE_MS)).response.status is Status.OK
    await channel.close()


async def test_a_killed_core_ends_the_engine_process_which_is_restarted(pod: RunningPod) -> None:
    channel = await connected(pod)
    engine, ready = pod.pid("engine-0"), times_ready(pod)
    core = called(engine, "EngineCore")
    request = Request(channel, LONG, deadline_ms=DEADLINE_MS)
    await request.began.wait()
    os.kill(core, signal.SIGKILL)
    lost: Response = (await request.answered()).response
    assert fault(lost) == (Status.UNAVAILABLE, "engine_unavailable")
    await asyncio.to_thread(wait_ready, pod, ready + 1)
    assert pod.events("child_died", child="engine-0")[0]["how"] == "exited with code 70"
    assert group_of(engine) == {}
    assert (await write(channel, greedy("Once more"), deadline_ms=DEADLINE_MS)).response.status is Status.OK
    await channel.close()


async def test_a_killed_engine_process_takes_all_of_vllm_along_and_is_restarted(pod: RunningPod) -> None:
    channel = await connected(pod)
    engine, ready = pod.pid("engine-0"), times_ready(pod)
    assert len(group_of(engine)) >= 3
    request = Request(channel, LONG, deadline_ms=DEADLINE_MS)
    await request.began.wait()
    os.kill(engine, signal.SIGKILL)
    assert fault((await request.answered()).response) == (Status.UNAVAILABLE, "engine_unavailable")
    eventually("nothing of vLLM left", lambda: group_of(engine) == {}, timeout=30.0)
    await asyncio.to_thread(wait_ready, pod, ready + 1)
    await channel.close()


async def test_a_pod_that_is_told_to_end_answers_first_and_leaves_nothing_behind(pod: RunningPod) -> None:
    channel = await connected(pod)
    engine = pod.pid("engine-0")
    request = Request(channel, replace(LONG, max_tokens=500), deadline_ms=DEADLINE_MS)
    await request.began.wait()
    assert await asyncio.to_thread(end, pod) == 0
    assert (await request.answered()).response.status is Status.OK
    assert pod.events("worker_drained")[-1]["complete"] is True
    eventually("nothing of vLLM left", lambda: group_of(engine) == {}, timeout=30.0)
    await channel.close()
