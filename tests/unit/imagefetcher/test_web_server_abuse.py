"""Who connects and says nothing, half of something, or too much: nobody else feels it, and no log fills."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from copydesk.imagefetcher import web_server
from copydesk.imagefetcher.web_server import Answer, Request, WebServer


@pytest.fixture
async def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Path]:
    monkeypatch.setattr(web_server, "HEAD_SECONDS", 0.1)
    monkeypatch.setattr(web_server, "ANSWER_SECONDS", 0.1)

    async def handle(request: Request) -> Answer:
        return Answer(b"x" * (64 << 20) if request.path == "/large" else request.body)

    server = WebServer(handle)
    await server.listen_unix(tmp_path / "socket")
    yield tmp_path / "socket"
    await server.close()


async def said(path: Path, sent: bytes, end: bool = True) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(sent)
    if end:
        writer.write_eof()
    try:
        return await asyncio.wait_for(reader.read(), 5)
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("sent", "end"),
    [(b"", True), (b"GET /", True), (b"GET /", False), (b"POST / HTTP/1.1\r\ncontent-length: 9\r\n\r\nx", True)],
)
async def test_who_does_not_finish_is_left_without_a_word(path: Path, sent: bytes, end: bool) -> None:
    with capture_logs() as logs:
        assert await said(path, sent, end) == b""
    assert logs == []


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: " + b"9" * 5000 + b"\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: 99999999\r\n\r\n",
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n",
        b"GET / HTTP/1.1\r\na: " + b"a" * 20_000 + b"\r\n\r\n",
    ],
)
async def test_nonsense_is_answered_as_such(path: Path, sent: bytes) -> None:
    with capture_logs() as logs:
        assert (await said(path, sent)).startswith(b"HTTP/1.1 4")
    assert logs == []


async def test_who_does_not_read_is_left(path: Path) -> None:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(b"GET /large HTTP/1.1\r\n\r\n")
    await asyncio.sleep(0.5)
    with contextlib.suppress(ConnectionResetError):
        assert len(await asyncio.wait_for(reader.read(), 5)) < 64 << 20
    writer.close()
    assert (await said(path, b"GET / HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200")
