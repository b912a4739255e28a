import asyncio
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from copydesk.common.messages import EndpointState
from copydesk.common.rpc import Status
from copydesk.common.tasks import Outcome
from tests.fixtures.nats import free_port
from tests.integration.pod.running_pod import (
    RunningPod,
    answer,
    ask,
    eventually,
    fault,
    is_ready,
    pong_where,
    running_pod,
)


@pytest.fixture(scope="module")
def metrics_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def pod(silent_model: Path, metrics_port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPod]:
    log = tmp_path_factory.mktemp("pod") / "log"
    with running_pod(silent_model, log, WORKERS=2, METRICS_PORT=metrics_port) as pod:
        pod.wait_ready()
        yield pod


async def test_sentences_are_answered_side_by_side(pod: RunningPod) -> None:
    channel = await pod.channel()
    await pong_where(channel, is_ready)
    texts = [f"Sentence number {number} stays as it is." for number in range(40)]
    responses = await asyncio.gather(*(channel.call(ask(text), deadline_ms=30_000) for text in texts))
    corrected = [answer(response) for response in responses]
    assert [sentence.text for sentence in corrected] == texts
    assert {sentence.outcome for sentence in corrected} == {Outcome.CORRECTED}
    assert all(sentence.prompt_tokens > 20 and sentence.completion_tokens == 1 for sentence in corrected)
    await channel.close()


async def test_the_greeting_names_model_digest_and_capacity(pod: RunningPod) -> None:
    while True:
        channel = await pod.channel()
        await channel.close()
        if channel.peer.state is EndpointState.READY:
            break
    assert (channel.peer.model, channel.peer.capacity) == ("gec-en", 8)
    assert channel.peer.digest == pod.events("engine_ready")[-1]["digest"]


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (ask(""), "empty_text"),
        (ask(" \t "), "empty_text"),
        (b"\xc0", "bad_payload"),
        (b"\x92\x01\x02", "bad_payload"),
    ],
)
async def test_what_is_no_sentence_is_invalid(pod: RunningPod, payload: bytes, code: str) -> None:
    channel = await pod.channel()
    assert fault(await channel.call(payload, deadline_ms=5_000)) == (Status.INVALID, code)
    await channel.close()


async def test_a_sentence_beyond_the_context_comes_back_as_it_was(pod: RunningPod) -> None:
    channel = await pod.channel()
    text = "word " * 400 + "end."
    corrected = answer(await channel.call(ask(text), deadline_ms=5_000))
    assert (corrected.text, corrected.outcome) == (text, Outcome.TOO_LONG)
    await channel.close()


async def test_only_the_engine_has_torch_in_its_memory(pod: RunningPod) -> None:
    def has_torch(pid: int) -> bool:
        return "libtorch" in Path(f"/proc/{pid}/maps").read_text()

    assert has_torch(pod.pid("engine-0"))
    assert not any(map(has_torch, (pod.process.pid, pod.pid("worker-0"), pod.pid("worker-1"))))


async def test_metrics_add_up_what_the_processes_of_the_pod_counted(pod: RunningPod, metrics_port: int) -> None:
    channel = await pod.channel()
    await pong_where(channel, is_ready)
    before = _metrics(metrics_port)
    for _ in range(5):
        answer(await channel.call(ask("Five of these."), deadline_ms=30_000))
    await channel.call(ask(""), deadline_ms=5_000)

    def grown(name: str) -> float:
        return _metrics(metrics_port).get(name, 0.0) - before.get(name, 0.0)

    assert grown('copydesk_inference_requests_total{status="ok"}') == 5
    assert grown('copydesk_inference_requests_total{status="invalid"}') == 1
    assert grown("copydesk_inference_request_seconds_count") == 5
    assert grown("copydesk_inference_completion_tokens_total") == 5
    assert grown("copydesk_inference_passes_total") == 5
    assert (
        grown("copydesk_inference_drafted_tokens_total") > grown("copydesk_inference_accepted_tokens_total") == 0
    )
    eventually("steps", lambda: grown("copydesk_inference_step_seconds_count") >= 1)
    assert _metrics(metrics_port)["copydesk_inference_capacity"] == 8
    assert _metrics(metrics_port)["copydesk_inference_ready"] == 1
    await channel.close()


def test_metrics_tell_the_memory_of_each_process(pod: RunningPod, metrics_port: int) -> None:
    metrics = _metrics(metrics_port)
    for process in ("supervisor", "engine-0", "worker-0", "worker-1"):
        resident = metrics[f'copydesk_inference_resident_memory_bytes{{process="{process}"}}']
        assert 10e6 < resident < 2e9


def test_probes_hear_that_the_pod_lives_and_takes_requests(pod: RunningPod, metrics_port: int) -> None:
    pod.wait_ready()
    for path, said in (("healthz", b'{"alive":true}'), ("readyz", b'{"ready":true,"state":"ready"}')):
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/{path}", timeout=10) as page:
            assert page.read() == said


def _metrics(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
        lines = page.read().decode().splitlines()
    samples = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in samples}
