"""The daemon's side of the control socket."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from pathlib import Path
from typing import TypeVar

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from copydesk.imagefetcher.control.messages import (
    BackgroundRequest,
    ClearAnswer,
    ErrorAnswer,
    MountAnswer,
    MountRequest,
    NodeStatus,
    PrefetchAnswer,
    PrefetchRequest,
    UnmountRequest,
)
from copydesk.imagefetcher.device.errors import MountError
from copydesk.imagefetcher.errors import ImageError
from copydesk.imagefetcher.fetch.completion import Completion
from copydesk.imagefetcher.node import Node, TargetError
from copydesk.imagefetcher.store.sectors import SectorStore
from copydesk.imagefetcher.upstream import NotConvertedError, UpstreamError
from copydesk.imagefetcher.web_server import Answer, Request, RequestError

T = TypeVar("T")


class ControlService:
    """Mount, unmount, prefetch, status, clear; and health and metrics, as on the metrics port."""

    def __init__(
        self, node: Node, store: SectorStore, completion: Completion, status: Callable[[], NodeStatus]
    ) -> None:
        self._node = node
        self._store = store
        self._completion = completion
        self._status = status
        self._routes: dict[tuple[str, str], Callable[[Request], Awaitable[msgspec.Struct | None]]] = {
            ("GET", "/v1/status"): self._show,
            ("POST", "/v1/mounts"): self._mount,
            ("POST", "/v1/unmount"): self._unmount,
            ("POST", "/v1/prefetch"): self._prefetch,
            ("POST", "/v1/background"): self._background,
            ("POST", "/v1/cache/clear"): self._clear,
        }

    async def handle(self, request: Request) -> Answer:
        """Answer one request; raises RequestError."""
        route = self._routes.get((request.method, request.path))
        if route is None:
            raise RequestError(HTTPStatus.NOT_FOUND, f"there is no {request.method} {request.path}")
        try:
            answer = await route(request)
        except ImageError as error:
            said = ErrorAnswer(str(error), error.hint)
            return Answer(msgspec.json.encode(said), status=status_of(error))
        return Answer(msgspec.json.encode(answer))

    async def _show(self, _: Request) -> NodeStatus:
        return self._status()

    async def _mount(self, request: Request) -> MountAnswer:
        asked = _decoded(request, MountRequest)
        known = await self._node.mount(asked.reference, Path(asked.target))
        return MountAnswer(known.image, known.index.image.digest, asked.target)

    async def _unmount(self, request: Request) -> None:
        asked = _decoded(request, UnmountRequest)
        await self._node.unmount(Path(asked.target), detach=asked.detach)

    async def _prefetch(self, request: Request) -> PrefetchAnswer:
        asked = _decoded(request, PrefetchRequest)
        known, fetching = await self._node.prefetch(asked.reference, everything=asked.everything)
        return PrefetchAnswer(known.image, fetching)

    async def _background(self, request: Request) -> None:
        self._completion.paused = not _decoded(request, BackgroundRequest).on
        self._completion.wake()

    async def _clear(self, _: Request) -> ClearAnswer:
        return ClearAnswer(self._store.clear(), self._node.forget_unmounted())


def status_of(error: ImageError) -> HTTPStatus:
    """The HTTP status that says what kind of error this is."""
    if isinstance(error, NotConvertedError):
        return HTTPStatus.NOT_FOUND
    if isinstance(error, TargetError) or (isinstance(error, MountError) and error.code == errno.EBUSY):
        return HTTPStatus.CONFLICT
    if isinstance(error, UpstreamError):
        return HTTPStatus.BAD_GATEWAY
    return HTTPStatus.INTERNAL_SERVER_ERROR


def health_handler(
    registry: CollectorRegistry, *, alive: Callable[[], bool], ready: Callable[[], bool]
) -> Callable[[Request], Answer | None]:
    """Answer /healthz, /readyz and /metrics; None for any other path."""

    def handle(request: Request) -> Answer | None:
        if request.method not in ("GET", "HEAD"):
            return None
        if request.path == "/metrics":
            return Answer(generate_latest(registry), CONTENT_TYPE_LATEST)
        if request.path == "/healthz":
            return _verdict("alive", alive())
        return _verdict("ready", ready()) if request.path == "/readyz" else None

    return handle


def _verdict(name: str, good: bool) -> Answer:
    status = HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE
    return Answer(msgspec.json.encode({name: good}), status=status)


def _decoded(request: Request, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(request.body, type=kind)
    except msgspec.DecodeError as error:
        raise RequestError(HTTPStatus.BAD_REQUEST, str(error)) from error
