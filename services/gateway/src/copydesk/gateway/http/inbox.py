"""The incoming side of one HTTP request: its body within limits, the rest dropped, its client's leaving."""

from __future__ import annotations

import asyncio

from starlette.types import Message, Receive, Scope

from copydesk.common.errors import CopydeskError
from copydesk.gateway import faults

DRAIN_BYTES = 8 << 20
DRAIN_SECONDS = 2.0
DRAIN_IDLE_SECONDS = 0.5


class ClientGoneError(CopydeskError):
    """The client closed the connection; nobody waits for an answer."""


class Inbox:
    """Wraps ASGI's `receive`, and knows whether the body has come to its end.

    A response that is sent while a client still writes its body may never be seen: the client's write fails first,
    or closing the socket on unread data resets the connection. So before any early answer, `drain` reads on for a
    bounded while.
    """

    def __init__(self, scope: Scope, receive: Receive) -> None:
        headers = dict(scope["headers"])
        self._receive = receive
        self._declared = _declared_length(headers.get(b"content-length"))
        self._touched = False
        self._expects_continue = headers.get(b"expect", b"").lower() == b"100-continue"
        self.deserted = False
        """Whether the client left before the answer was complete; told by who watched."""
        self.complete = not self._declared and b"transfer-encoding" not in headers

    async def __call__(self) -> Message:
        """Receive one ASGI message."""
        self._touched = True
        message = await self._receive()
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            self.complete = True
        return message

    @property
    def uninvited(self) -> bool:
        """Whether the client still waits for `100 Continue` before it sends its body."""
        return self._expects_continue and not self._touched and not self.complete

    async def read(self, limit: int, timeout: float) -> bytes:
        """Return the body.

        Raises `ApiError` 413 beyond `limit` bytes and 408 after `timeout` seconds, and `ClientGoneError`.
        """
        if self._declared > limit:
            raise faults.body_too_large(limit)
        body = bytearray()
        try:
            async with asyncio.timeout(timeout):
                while not self.complete:
                    body += await self._chunk()
                    if len(body) > limit:
                        raise faults.body_too_large(limit)
        except TimeoutError:
            raise faults.body_timeout(timeout) from None
        return bytes(body)

    async def drain(self) -> None:
        """Read what is left of the body and drop it, up to a limit in bytes, time and idleness."""
        left = DRAIN_BYTES
        ends = asyncio.get_running_loop().time() + DRAIN_SECONDS
        while not self.complete and left > 0:
            now = asyncio.get_running_loop().time()
            try:
                async with asyncio.timeout(min(DRAIN_IDLE_SECONDS, ends - now)):
                    left -= len(await self._chunk())
            except (TimeoutError, ClientGoneError):
                return

    async def client_gone(self) -> None:
        """Return once the client has closed the connection; call it when the body is complete."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def _chunk(self) -> bytes:
        message = await self()
        if message["type"] == "http.disconnect":
            raise ClientGoneError("the client left before its request was complete")
        body: bytes = message.get("body", b"")
        return body


def _declared_length(value: bytes | None) -> int:
    return int(value) if value is not None and value.isdigit() else 0
