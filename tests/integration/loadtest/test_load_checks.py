"""A generator that holds each answer against its request: whose it is, what it says, and that it is alone."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from copydesk.loadtest import RequestFailedError
from copydesk.loadtest.client import Client, Target, correction_bodies
from copydesk.loadtest.generators import Generators

TEXTS = ("She go home.", "They was late.")
RIGHT = ("She goes home.", "They were late.")
ANSWERS = dict(zip(TEXTS, RIGHT, strict=True))

Tell = Callable[[str, str], bytes]
"""Makes the bytes that answer the request with an id and a text."""


def answer(name: str, corrected: str) -> bytes:
    body = json.dumps({"id": name, "corrected": corrected}).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)


@asynccontextmanager
async def serving(tell: Tell) -> AsyncIterator[Target]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(re.findall(rb"Content-Length: (\d+)", head)[0])
                text = json.loads(await reader.readexactly(length))["text"]
                named = re.findall(rb"X-Request-Id: (\S+)", head)
                writer.write(tell(named[0].decode() if named else "", text))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    tasks: list[asyncio.Task[None]] = []
    server = await asyncio.start_server(
        lambda *both: tasks.append(asyncio.create_task(serve(*both))), "127.0.0.1", 0
    )
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield Target(url=url, bodies=correction_bodies(TEXTS), request_ids="run-7-", answers=RIGHT)
    await asyncio.gather(*tasks)


async def test_each_request_has_an_id_of_its_own_and_its_answer_is_held_against_it() -> None:
    seen: list[str] = []

    def tell(name: str, text: str) -> bytes:
        seen.append(name)
        return answer(name, ANSWERS[text])

    async with serving(tell) as target:
        client = Client(target)
        for index in range(5):
            await client.send(index)
        client.close()
    assert seen == [f"run-7-{index}" for index in range(5)]
    assert client.unasked == 0


@pytest.mark.parametrize(
    ("tell", "kind"),
    [
        (lambda name, text: answer("run-7-99", ANSWERS[text]), "other_id"),
        (lambda name, text: answer(name, text), "other_answer"),
        (lambda name, text: b'HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{"id":1 }', "not_json"),
    ],
)
async def test_what_is_not_the_right_answer_is_a_failure_of_its_kind(tell: Tell, kind: str) -> None:
    async with serving(tell) as target:
        client = Client(target)
        with pytest.raises(RequestFailedError) as caught:
            await client.send(0)
        client.close()
    assert caught.value.kind == kind


async def test_a_second_answer_is_counted_wherever_it_comes_and_spoils_no_other_request() -> None:
    def twice(name: str, text: str) -> bytes:
        return answer(name, ANSWERS[text]) * 2

    async with serving(twice) as target, Generators(target) as generators:
        samples = await generators.fly([0.0, 0.1, 0.2])
        assert [sample.failure for sample in samples] == [None] * 3
        assert generators.unasked == 3


async def test_without_ids_and_answers_nothing_is_asked_of_a_body_but_json() -> None:
    async with serving(lambda name, text: answer("any", "thing")) as target:
        client = Client(Target(url=target.url, bodies=target.bodies))
        await client.send(0)
        client.close()
