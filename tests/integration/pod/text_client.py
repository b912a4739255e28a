"""What a gateway does to have a text written."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import msgspec

from copydesk.common.rpc import Channel, Response, Status
from copydesk.common.tasks import GeneratedText, GenerateText, TextChunk, TextPrompt


def text_of(tokens: int) -> GenerateText:
    """Return the task to write a text of just that many tokens, up to 500, on a tiny model's null device.

    That device finds one token hardly likelier than any other, so that a text drawn at random may end at each. The
    likeliest tokens follow a rule; after this prompt, they do not come by the one that ends texts.
    """
    return GenerateText(TextPrompt("A long text, please:"), tokens, temperature=0.0)


@dataclass(frozen=True)
class Written:
    """The answer, and what was streamed before it."""

    response: Response
    chunks: list[str]

    @property
    def text(self) -> GeneratedText:
        """The whole answer of a request that must have been answered."""
        assert self.response.status is Status.OK, self.response
        return msgspec.msgpack.decode(self.response.payload, type=GeneratedText)


class Request:
    """A request on its way; `cancel` gives it up."""

    def __init__(self, channel: Channel, task: GenerateText, *, deadline_ms: int = 60_000) -> None:
        self._channel = channel
        self.chunks: list[str] = []
        self.began = asyncio.Event()
        self._answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._id = channel.send(
            msgspec.msgpack.encode(task),
            deadline_ms=deadline_ms,
            on_reply=self._answer.set_result,
            on_chunk=self._on_chunk,
        )

    async def answered(self) -> Written:
        """Wait for the answer."""
        return Written(await self._answer, self.chunks)

    def cancel(self) -> None:
        """Give it up."""
        self._channel.cancel(self._id)

    def _on_chunk(self, payload: msgspec.Raw) -> None:
        self.chunks.append(msgspec.msgpack.decode(payload, type=TextChunk).text)
        self.began.set()


async def write(channel: Channel, task: GenerateText, *, deadline_ms: int = 60_000) -> Written:
    """Have a text written."""
    return await Request(channel, task, deadline_ms=deadline_ms).answered()


async def stream(channel: Channel, task: GenerateText) -> Written:
    """Have a text written, and its parts sent as they are made."""
    return await write(channel, msgspec.structs.replace(task, stream=True))
