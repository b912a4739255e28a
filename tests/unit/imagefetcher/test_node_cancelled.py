"""A mount whose caller has gone: it is finished and known, so that somebody can undo it."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from copydesk.imagefetcher import node as node_module
from copydesk.imagefetcher.library import MetadataError
from copydesk.imagefetcher.node import Node
from copydesk.imagefetcher.store.ledger import Ledger
from copydesk.imagefetcher.upstream import UpstreamError

KNOWN: Any = SimpleNamespace(
    image="sha256:aa",
    reference="registry.test/app:v1",
    metadata=Path("/metadata"),
    volume=SimpleNamespace(name="aa"),
    index=SimpleNamespace(data=SimpleNamespace(sectors=(1,)), prefetch=()),
)


def make(tmp_path: Path, upstream: Any = None, library: Any = None) -> Node:
    parts: Any = None
    return Node(library, Ledger(tmp_path / "ledger.sqlite"), parts, parts, tmp_path, upstream)


async def test_a_mount_that_nobody_waits_for_any_more_is_finished_and_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(*_: object, **__: object) -> bool:
        begun.set()
        return go_on.wait(10)

    async def acquire(_: str) -> Any:
        return KNOWN

    monkeypatch.setattr(node_module, "mount_image", slow)
    monkeypatch.setattr(node_module, "_erofs_at", lambda _: None)
    node = make(tmp_path)
    monkeypatch.setattr(node, "acquire", acquire)
    caller = asyncio.create_task(node.mount(KNOWN.reference, tmp_path / "mnt"))
    assert await asyncio.to_thread(begun.wait, 10)
    caller.cancel()
    with suppress(asyncio.CancelledError):
        await caller
    assert not node.is_mounted(tmp_path / "mnt")
    known = asyncio.Event()
    node.changed = known.set
    go_on.set()
    await asyncio.wait_for(known.wait(), 10)
    assert node.is_mounted(tmp_path / "mnt")
    assert [row.target for row in node.mounts] == [str(tmp_path / "mnt")]


async def test_a_registry_that_never_comes_to_an_end_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Dripping:
        async def find(self, _: str) -> None:
            await asyncio.Event().wait()

    monkeypatch.setattr(node_module, "FIND_S", 0.01)
    node = make(tmp_path, Dripping(), SimpleNamespace(find=lambda _: None))
    with pytest.raises((UpstreamError, MetadataError), match="took more than"):
        await asyncio.wait_for(node.mount("registry.test/app:v1", tmp_path / "mnt"), 10)
