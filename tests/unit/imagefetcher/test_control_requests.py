"""The daemon's small HTTP server, its settings, and the errors that callers see."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from copydesk.common.settings import load_settings
from copydesk.imagefetcher.control.service import status_of
from copydesk.imagefetcher.device.errors import MountError
from copydesk.imagefetcher.device.mounts import mounted
from copydesk.imagefetcher.errors import ImageError, IndexFormatError
from copydesk.imagefetcher.node import TargetError
from copydesk.imagefetcher.settings import ImageFetcherSettings
from copydesk.imagefetcher.upstream import NotConvertedError, UpstreamError
from copydesk.imagefetcher.web_server import Answer, Request, RequestError, WebServer, parse_head


async def echo(request: Request) -> Answer:
    if request.path == "/fail":
        raise ValueError("oh")
    return Answer(request.body, "text/plain")


async def exchange(raw: bytes) -> bytes:
    server = WebServer(echo)
    await server.listen("127.0.0.1", 0)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(raw)
        answer = await reader.read()
        writer.close()
        return answer
    finally:
        await server.close()


async def test_a_body_comes_back_with_its_length() -> None:
    answer = await exchange(b"POST /x?y=1 HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Length: 5\r\n" in answer
    assert answer.endswith(b"\r\n\r\nhello")


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 1x\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 40_000, 431),
        (b"GET /fail HTTP/1.1\r\n\r\n", 500),
    ],
)
async def test_what_cannot_be_served_is_answered_and_the_server_lives(raw: bytes, status: int) -> None:
    assert (await exchange(raw)).startswith(f"HTTP/1.1 {status} ".encode())


@given(st.binary(max_size=300))
def test_any_head_is_a_request_or_a_typed_error(head: bytes) -> None:
    try:
        request = parse_head(head + b"\r\n\r\n")
    except RequestError:
        return
    assert " " not in request.path
    assert all(name == name.lower() for name in request.headers)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NotConvertedError("app"), 404),
        (TargetError(Path("/x"), "taken"), 409),
        (MountError("unmount", "/x", errno.EBUSY), 409),
        (MountError("mount", "/x", errno.EPERM), 500),
        (UpstreamError("app", "away"), 502),
        (IndexFormatError("data", "wrong"), 500),
    ],
)
def test_callers_can_tell_what_kind_of_failure_it_is(error: ImageError, status: int) -> None:
    assert status_of(error) == status


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"peer_port": 7070}, "PEER_TOKEN"),
        ({"peer_port": 7070, "peer_token": "short"}, "16 characters"),
        ({"peer_token": "x" * 16, "peer_host": "0.0.0.0", "peer_port": 7070}, "name the address"),
        ({"mirrors": "ftp://mirror"}, "no URL"),
        ({"node": "a b"}, "pattern"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        ImageFetcherSettings(**settings)  # type: ignore[arg-type]


def test_mirrors_keep_their_order_and_may_speak_plain_http() -> None:
    settings = load_settings(
        ImageFetcherSettings, mirrors="http://near:5000, https://far/", plain_http_registries="old:80", node="n1"
    )
    assert settings.mirror_urls == ["http://near:5000", "https://far"]
    assert settings.plain_http_hosts == {"near:5000", "old:80"}
    assert settings.node_name == "n1"
    assert load_settings(ImageFetcherSettings).node_name


def test_mount_points_with_odd_names_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    line = rb"36 35 98:0 / /mnt/a\040b\134c rw,noatime master:1 - erofs /images/m\011x ro,device=/d"
    monkeypatch.setattr(Path, "read_bytes", lambda _: line)
    (mount,) = mounted()
    assert (mount.target, mount.kind, mount.source) == ("/mnt/a b\\c", "erofs", "/images/m\tx")
