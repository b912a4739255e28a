"""Checkpoints in 8 bits, as `copydesk model quantize` writes them, served by vLLM."""

import asyncio
from collections.abc import Sequence
from difflib import SequenceMatcher
from pathlib import Path

import pytest

from copydesk.inference.quantisation.conversion import quantise_directory
from copydesk.inference.quantisation.plan import PrecisionPlan
from copydesk.inference.quantisation.scheme import Scheme
from tests.fixtures.default_model import default_model_or_skip
from tests.integration.pod.running_pod import RunningPod, answer, ask, is_ready, pong_where, running_pod
from tests.vllm.conftest import vllm_pod
from tests.vllm.vllm_processes import wait_ready

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(2000)]

SENTENCES = (
    "She go to school every day.",
    "I has two brother and one sister.",
    "Yesterday we was walking in the park when it start to rain.",
    "He don't knows where is the station.",
    "There is many reason why people likes to travel.",
    "This sentence is correct.",
    "If I would have known, I will have told you.",
    "The informations was given by a expert in economy.",
    "My sister and me goes swimming on every tuesday.",
    "It is important that childrens learn to reading early.",
    "We look forward to hear from you soon.",
    "The weather was so nice that we stayed outside.",
)
AGREEMENT = 0.9
"""Of words with the original's; greedy decisions flip on near ties, in one of a hundred tokens or so, and not the
same ones on every processor."""


async def corrected(pod: RunningPod, sentences: Sequence[str]) -> list[str]:
    channel = await pod.channel()
    await pong_where(channel, is_ready)
    texts = [answer(await channel.call(ask(text), deadline_ms=120_000)).text for text in sentences]
    await channel.close()
    return texts


def agreement(ours: Sequence[str], others: Sequence[str]) -> float:
    """The share of words that both have in the same order."""
    one, other = (" \n ".join(texts).split(" ") for texts in (ours, others))
    return SequenceMatcher(None, one, other, autojunk=False).ratio()


@pytest.fixture(scope="module")
def original() -> Path:
    return default_model_or_skip()


@pytest.fixture(scope="module")
def expected(original: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What the original answers in the native engine."""
    log = tmp_path_factory.mktemp("native") / "log"
    with running_pod(original, log, DTYPE="bfloat16", THREADS=0, SLOTS=2) as pod:
        wait_ready(pod)
        return asyncio.run(corrected(pod, SENTENCES))


async def test_a_checkpoint_in_int8_answers_in_vllm_as_the_original_does(
    vllm_python: str, original: Path, expected: list[str], tmp_path: Path
) -> None:
    quantise_directory(original, tmp_path / "model", PrecisionPlan(Scheme.INT8), measure=False)
    with vllm_pod(vllm_python, tmp_path / "model", tmp_path / "log", DTYPE="auto", CONTEXT=512) as pod:
        wait_ready(pod)
        found = await corrected(pod, SENTENCES)
    assert found != list(SENTENCES)
    assert agreement(found, expected) >= AGREEMENT
