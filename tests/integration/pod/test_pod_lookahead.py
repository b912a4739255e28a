"""A pod whose engine looks ahead writes what one writes whose engine waits for each step."""

import asyncio
from pathlib import Path

from copydesk.common.tasks import GenerateText, TextPrompt
from tests.integration.pod.running_pod import running_pod
from tests.integration.pod.text_client import Request, text_of

SLOTS, REQUESTS = 4, 24


def task(number: int) -> GenerateText:
    """Long and short ones, some streamed, some that a string ends, one drawn at random."""
    return GenerateText(
        TextPrompt("".join(chr(ord("a") + number * step % 26) for step in range(9))),
        5 + number % 40,
        temperature=1.0 if number == 7 else 0.0,
        seed=1,
        stop=["e"] if number % 5 == 0 else [],
        stream=number % 3 == 0,
    )


async def written_by(model: Path, log: Path, **settings: object) -> list[str]:
    """Have all written at once, beside one that is given up, and end the pod."""
    with running_pod(model, log, SLOTS=SLOTS, CONTEXT=1024, DTYPE="auto", DRAFT="off", **settings) as pod:
        pod.wait_ready()
        channel = await pod.channel()
        given_up = Request(channel, text_of(500))
        requests = [Request(channel, task(number)) for number in range(REQUESTS)]
        given_up.cancel()
        answers = await asyncio.gather(*(request.answered() for request in requests))
        for answer in answers[::3]:
            assert "".join(answer.chunks) == answer.text.text
        await channel.close()
        assert pod.terminate() == 0
        return [answer.text.text for answer in answers]


async def test_many_texts_at_once_are_the_same_with_and_without_looking_ahead(
    talkative_model: Path, tmp_path: Path
) -> None:
    ahead = await written_by(talkative_model, tmp_path / "ahead", DEVICE="null-async:0.5")
    waits = await written_by(talkative_model, tmp_path / "waits", DEVICE="null:0", ASYNCHRONOUS=False)
    assert ahead == waits
    assert len(set(ahead)) > REQUESTS / 2
