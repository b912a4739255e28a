"""The gRPC server that containerd's proxy plugin talks to, over a Unix socket."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message

from copydesk.common.telemetry import get_logger
from copydesk.imagefetcher.errors import ImageError
from copydesk.imagefetcher.snapshotter import snapshots_pb2 as wire
from copydesk.imagefetcher.snapshotter.catalogue import Snapshot
from copydesk.imagefetcher.snapshotter.errors import SnapshotExistsError, SnapshotMissingError, SnapshotStateError
from copydesk.imagefetcher.snapshotter.snapshots import Snapshots
from copydesk.imagefetcher.snapshotter.stack import MountSpec
from copydesk.imagefetcher.web_server import ListenError

SERVICE = "containerd.services.snapshots.v1.Snapshots"
_LIST_PART = 100
_CODES = (
    (SnapshotExistsError, grpc.StatusCode.ALREADY_EXISTS),
    (SnapshotMissingError, grpc.StatusCode.NOT_FOUND),
    (SnapshotStateError, grpc.StatusCode.FAILED_PRECONDITION),
)

In = TypeVar("In", bound=Message)
Out = TypeVar("Out", bound=Message)

_log = get_logger(__name__)


class SnapshotServer:
    """Serves `snapshots` at the socket `path`."""

    def __init__(self, snapshots: Snapshots, path: Path) -> None:
        self._snapshots = snapshots
        self._path = path
        self._server = grpc.aio.server()
        handlers = {
            "Prepare": _unary(self._prepare, wire.CreateRequest),
            "View": _unary(self._view, wire.CreateRequest),
            "Mounts": _unary(self._mounts, wire.KeyRequest),
            "Commit": _unary(self._commit, wire.CommitRequest),
            "Remove": _unary(self._remove, wire.KeyRequest),
            "Stat": _unary(self._stat, wire.KeyRequest),
            "Update": _unary(self._update, wire.UpdateRequest),
            "Usage": _unary(self._usage, wire.KeyRequest),
            "Cleanup": _unary(self._clean_up, wire.CleanupRequest),
            "List": grpc.unary_stream_rpc_method_handler(
                self._list, wire.ListRequest.FromString, wire.ListResponse.SerializeToString
            ),
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))

    async def start(self) -> None:
        """Listen, for root only. Raises ListenError."""
        former = os.umask(0o177)  # for as long as it takes to bind: what else is made meanwhile would suffer
        try:
            self._server.add_insecure_port(f"unix:{self._path}")
        except RuntimeError as error:
            raise ListenError(str(self._path), "cannot be listened at") from error
        finally:
            os.umask(former)
        await self._server.start()
        _log.info("snapshotter_listening", path=str(self._path))

    async def close(self) -> None:
        """Finish what is being done, and stop."""
        await self._server.stop(5.0)

    async def _prepare(self, asked: wire.CreateRequest) -> wire.MountsResponse:
        return _mounts(await self._snapshots.prepare(asked.key, asked.parent, dict(asked.labels)))

    async def _view(self, asked: wire.CreateRequest) -> wire.MountsResponse:
        return _mounts(await self._snapshots.view(asked.key, asked.parent, dict(asked.labels)))

    async def _mounts(self, asked: wire.KeyRequest) -> wire.MountsResponse:
        return _mounts(await self._snapshots.mounts(asked.key))

    async def _commit(self, asked: wire.CommitRequest) -> Empty:
        self._snapshots.commit(asked.key, asked.name, dict(asked.labels))
        return Empty()

    async def _remove(self, asked: wire.KeyRequest) -> Empty:
        await self._snapshots.remove(asked.key)
        return Empty()

    async def _stat(self, asked: wire.KeyRequest) -> wire.InfoResponse:
        return wire.InfoResponse(info=_info(self._snapshots.stat(asked.key)))

    async def _update(self, asked: wire.UpdateRequest) -> wire.InfoResponse:
        before = self._snapshots.stat(asked.info.name).labels
        after = updated(before, dict(asked.info.labels), list(asked.update_mask.paths))
        return wire.InfoResponse(info=_info(self._snapshots.relabel(asked.info.name, after)))

    async def _usage(self, asked: wire.KeyRequest) -> wire.UsageResponse:
        size, inodes = await self._snapshots.usage(asked.key)
        return wire.UsageResponse(size=size, inodes=inodes)

    async def _clean_up(self, _: wire.CleanupRequest) -> Empty:
        await self._snapshots.clean_up()
        return Empty()

    async def _list(self, _: wire.ListRequest, __: object) -> AsyncIterator[wire.ListResponse]:
        # Filters are left to containerd, which applies them again.
        infos = [_info(snapshot) for snapshot in self._snapshots.all()]
        for start in range(0, len(infos), _LIST_PART):
            yield wire.ListResponse(info=infos[start : start + _LIST_PART])


def updated(before: dict[str, str], given: dict[str, str], paths: list[str]) -> dict[str, str]:
    """Return the labels after an update: those of `paths`, or all without any; what is not given goes."""
    if not paths or "labels" in paths:
        return given
    after = dict(before)
    for path in paths:
        name = path.removeprefix("labels.")
        if name == path:
            continue  # nothing else can be changed
        after.pop(name, None)
        if given.get(name):
            after[name] = given[name]
    return after


def _unary(
    work: Callable[[In], Awaitable[Out]], kind: type[In]
) -> Any:  # gRPC's handlers have no type of their own
    async def serve(asked: In, context: grpc.aio.ServicerContext[In, Out]) -> Out:
        try:
            return await work(asked)
        except ImageError as error:
            code = next((code for kind, code in _CODES if isinstance(error, kind)), grpc.StatusCode.UNAVAILABLE)
            await context.abort(code, str(error))
        except Exception as error:
            _log.exception("snapshot_call_failed", call=work.__name__)
            await context.abort(grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}")
        raise AssertionError("abort raises")

    return grpc.unary_unary_rpc_method_handler(serve, kind.FromString, lambda answer: answer.SerializeToString())


def _mounts(specs: list[MountSpec]) -> wire.MountsResponse:
    mounts = [wire.Mount(type=spec.kind, source=spec.source, options=spec.options) for spec in specs]
    return wire.MountsResponse(mounts=mounts)


def _info(snapshot: Snapshot) -> wire.Info:
    info = wire.Info(name=snapshot.name, parent=snapshot.parent, kind=snapshot.kind, labels=snapshot.labels)
    info.created_at.FromNanoseconds(int(snapshot.created * 1e9))
    info.updated_at.FromNanoseconds(int(snapshot.updated * 1e9))
    return info
