"""The way of requests that are not plain enough for the hot path, through ASGI to the same handlers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from copydesk.gateway.faults import ApiError
from copydesk.gateway.http.exchange import Handler, Headers
from copydesk.gateway.http.hot import JSON
from copydesk.gateway.http.inbox import ClientGoneError, Inbox
from copydesk.gateway.http.responses import error_response
from copydesk.gateway.settings import GatewaySettings
from copydesk.gateway.validation import check_content_type


def bridge(handler: Handler, settings: GatewaySettings) -> Callable[[Request], Awaitable[Response]]:
    """Return a FastAPI endpoint that answers as `handler` does; keys are checked before it."""

    async def serve(request: Request) -> Response:
        arrived = asyncio.get_running_loop().time()
        inbox: Inbox = request.state.inbox
        headers = dict(request.scope["headers"])
        kind = headers.get(b"content-type")
        check_content_type(None if kind is None else kind.decode("latin-1"))
        body = await inbox.read(settings.max_body_bytes, settings.body_timeout_ms / 1000)
        exchange = AsgiExchange(request, headers, body, arrived)
        handler(exchange)
        return await exchange.answer(inbox)

    return serve


class AsgiExchange:
    """An `Exchange` that ASGI brought, and whose answer ASGI takes away."""

    def __init__(self, request: Request, headers: Mapping[bytes, bytes], body: bytes, arrived: float) -> None:
        self.path: str = request.scope["path"]
        self.request_id: str = request.state.request_id
        self._state = request.state
        self.headers = headers
        self.body = body
        self.arrived = arrived
        self.client: str = getattr(request.state, "key_name", "")
        self.on_gone: Callable[[], None] | None = None
        self._response: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._parts: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._gone = self._complete = False

    async def answer(self, inbox: Inbox) -> Response:
        """Return the answer once it is there or has begun. Raises `ClientGoneError`."""
        watch = asyncio.ensure_future(self._watch(inbox))
        try:
            response = await self._response
        except BaseException:
            watch.cancel()
            self.leave()
            raise
        if isinstance(response, _Parts):
            response.watch = watch
        else:
            watch.cancel()
        return response

    def respond(self, body: bytes, *, status: int = 200, headers: Headers = (), kind: bytes = JSON) -> None:
        """Answer with a whole body."""
        if self._open():
            self._complete = True
            self._response.set_result(Response(body, status, _texts(kind, headers)))

    def fail(self, error: ApiError) -> None:
        """Answer with an error in OpenAI's shape."""
        if self._open():
            self._complete = True
            self._state.error = error
            self._response.set_result(error_response(error, self.request_id))

    def begin(self, *, kind: bytes, headers: Headers = ()) -> None:
        """Begin an answer with status 200 whose parts come one by one."""
        if self._open():
            self._response.set_result(_Parts(self, kind, headers))

    def write(self, part: bytes) -> None:
        """Send a part."""
        if part and not self._gone:
            self._parts.put_nowait(part)

    def end(self) -> None:
        """Say that the answer is complete."""
        if not self._gone:
            self._complete = True
            self._parts.put_nowait(None)

    async def parts(self) -> AsyncIterator[bytes]:
        """Yield what is written, what was written meanwhile together, until the end or until the client leaves."""
        ended = False
        while not ended:
            found = [await self._parts.get()]
            while not self._parts.empty():
                found.append(self._parts.get_nowait())
            ended = found[-1] is None
            yield b"".join(part for part in found if part)

    async def _watch(self, inbox: Inbox) -> None:
        await inbox.client_gone()
        if self._complete:
            return
        inbox.deserted = True
        self.leave()
        if self._response.done():
            self._parts.put_nowait(None)
        else:
            self._response.set_exception(ClientGoneError("the client left before the answer"))

    def leave(self) -> None:
        """Tell the handler that nobody waits, if that is so before it is through."""
        if self._complete or self._gone:
            return
        self._gone = True
        on_gone, self.on_gone = self.on_gone, None
        if on_gone is not None:
            on_gone()

    def _open(self) -> bool:
        if self._gone:
            return False
        if self._response.done():
            raise RuntimeError(f"{self.path}: {self.request_id} has been answered already")
        return True


class _Parts(StreamingResponse):
    """An answer in parts; `watch` sees whether its client stays. Starlette would watch a second time."""

    watch: asyncio.Future[None]

    def __init__(self, exchange: AsgiExchange, kind: bytes, headers: Headers) -> None:
        super().__init__(exchange.parts(), headers=_texts(kind, headers))
        self._exchange = exchange

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        try:
            await self.stream_response(send)
        finally:
            self.watch.cancel()
            self._exchange.leave()


def _texts(kind: bytes, headers: Headers) -> dict[str, str]:
    """Return the headers as Starlette wants them; it leaves a content type alone that is among them."""
    every = [(b"content-type", kind), *headers]
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in every}
