"""What a registry may do wrong, over real sockets: nothing wrong gets through, nothing secret gets out."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from copydesk.imagefetcher.registry.credentials import CredentialStore
from copydesk.imagefetcher.registry.errors import (
    AnswerError,
    AuthenticationError,
    DigestMismatchError,
    NotFoundError,
    PlainHttpRefusedError,
    RefusedError,
    RegistryUnreachableError,
)
from copydesk.imagefetcher.registry.manifest import OCI_INDEX, OCI_MANIFEST, Descriptor
from copydesk.imagefetcher.registry.options import CertificateError, RegistryOptions
from copydesk.imagefetcher.registry.reference import Reference
from copydesk.imagefetcher.registry.repository import Repository
from copydesk.imagefetcher.registry.transport import MAX_RETRY_AFTER, Transport
from copydesk.imagefetcher.registry.upload import PART
from tests.fixtures.nats import free_port
from tests.fixtures.scripted_http import Answer, Asked, ScriptedServer, scripted
from tests.fixtures.silent_server import silent_server

BLOB = os.urandom(300_000)
DIGEST = f"sha256:{hashlib.sha256(BLOB).hexdigest()}"
DESCRIPTOR = Descriptor("application/octet-stream", DIGEST, len(BLOB))
PATH = f"/v2/app/blobs/{DIGEST}"


def options(folder: Path, **more: object) -> RegistryOptions:
    """Impatient ones, that know no password but those in `folder`."""
    given = {"attempts": 4, "first_wait": 0.001, "longest_wait": 0.002, "plain_http": True, **more}
    return RegistryOptions(credentials=CredentialStore(folder), **given)  # type: ignore[arg-type]


def repository(server: ScriptedServer, folder: Path, **more: object) -> Repository:
    return Repository(Reference.parse(f"{server.host}/app:v1"), options(folder, **more))


def log_in(folder: Path, host: str, entry: dict[str, str]) -> None:
    (folder / "config.json").write_text(json.dumps({"auths": {host: entry}}))


def ranged(asked: Asked) -> Answer:
    """Serves the blob as a registry should."""
    match = re.fullmatch(r"bytes=(\d+)-(\d*)", asked.headers.get("range", ""))
    if match is None:
        return Answer(200, body=BLOB)
    start, stop = int(match[1]), int(match[2] or len(BLOB) - 1) + 1
    return Answer(206, {"Content-Range": f"bytes {start}-{stop - 1}/{len(BLOB)}"}, BLOB[start:stop])


def in_turn(*answers: Answer | Callable[[Asked], Answer]) -> Callable[[Asked], Answer]:
    """These answers one after the other, the last for ever."""
    left = list(answers)

    def script(asked: Asked) -> Answer:
        answer = left.pop(0) if len(left) > 1 else left[0]
        return answer(asked) if callable(answer) else answer

    return script


async def downloaded(server: ScriptedServer, folder: Path) -> bytes:
    out = io.BytesIO()
    heard = 0

    def progress(count: int) -> None:
        nonlocal heard
        heard += count

    async with repository(server, folder) as own:
        await own.blobs.download(DESCRIPTOR, out, progress)
    assert heard == len(BLOB)
    return out.getvalue()


async def test_a_download_goes_on_where_it_broke_off(tmp_path: Path) -> None:
    def cut(asked: Asked) -> Answer:
        whole = ranged(asked)
        return Answer(whole.status, whole.headers, whole.body, cut=100_000)

    with scripted(in_turn(cut, cut, Answer(cut=-1), Answer(503), ranged)) as server:
        assert await downloaded(server, tmp_path) == BLOB
    starts = [asked.headers.get("range", "whole") for asked in server.asked]
    assert starts[0] == "whole"
    assert [int(start[6:-1]) >= 100_000 for start in starts[2:]] == [True] * 3


async def test_a_registry_that_sends_blobs_only_whole_is_borne_with(tmp_path: Path) -> None:
    script = in_turn(Answer(200, body=BLOB, cut=200_000), Answer(200, body=BLOB))
    with scripted(script) as server:
        assert await downloaded(server, tmp_path) == BLOB


async def test_a_flipped_byte_is_noticed_and_the_blob_fetched_again_once(tmp_path: Path) -> None:
    wrong = Answer(200, body=BLOB[:-1] + bytes([BLOB[-1] ^ 1]))
    with scripted(in_turn(wrong, ranged)) as server:
        assert await downloaded(server, tmp_path) == BLOB
    with scripted(in_turn(wrong)) as server, pytest.raises(DigestMismatchError):
        await downloaded(server, tmp_path)
    assert len(server.asked) == 2


async def test_a_download_that_never_moves_ends(tmp_path: Path) -> None:
    def stuck(asked: Asked) -> Answer:
        whole = ranged(asked)
        return Answer(whole.status, whole.headers, whole.body, cut=0)

    with scripted(stuck) as server, pytest.raises(RegistryUnreachableError):
        await downloaded(server, tmp_path)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(200, body=BLOB),
        Answer(206, {"Content-Range": f"bytes 0-9/{len(BLOB)}"}, BLOB[:10]),
        Answer(206, {}, BLOB[100:110]),
        Answer(206, {"Content-Range": f"bytes 100-109/{len(BLOB)}"}, BLOB[100:105]),
        Answer(206, {"Content-Range": f"bytes 100-109/{len(BLOB)}"}, BLOB[100:200]),
    ],
)
async def test_any_other_range_than_was_asked_for_is_refused(tmp_path: Path, answer: Answer) -> None:
    with scripted(in_turn(answer)) as server:
        async with repository(server, tmp_path) as own:
            with pytest.raises(AnswerError):
                await own.read_blob(DIGEST, 100, 110)


async def test_a_range_is_read(tmp_path: Path) -> None:
    with scripted(ranged) as server:
        async with repository(server, tmp_path) as own:
            assert await own.read_blob(DIGEST, 100, 110) == BLOB[100:110]


async def test_a_blob_longer_than_it_should_be_is_refused_before_it_fills_the_disk(tmp_path: Path) -> None:
    with (
        scripted(in_turn(Answer(200, body=BLOB + b"x" * 1000))) as server,
        pytest.raises(AnswerError, match="more than"),
    ):
        await downloaded(server, tmp_path)


async def test_storage_elsewhere_gets_no_log_in(tmp_path: Path) -> None:
    with scripted(ranged) as storage:
        away = Answer(307, {"Location": f"http://{storage.host}/elsewhere?signature=1"})
        asks = Answer(401, {"WWW-Authenticate": 'Basic realm="x"'})

        def script(asked: Asked) -> Answer:
            return away if "authorization" in asked.headers else asks

        with scripted(script) as server:
            log_in(tmp_path, server.host, {"username": "ann", "password": "pw"})
            assert await downloaded(server, tmp_path) == BLOB
    assert [asked.path for asked in storage.asked] == ["/elsewhere?signature=1"]
    assert all("authorization" not in asked.headers for asked in storage.asked)


async def test_what_leads_in_a_circle_ends(tmp_path: Path) -> None:
    with (
        scripted(in_turn(Answer(302, {"Location": PATH}))) as server,
        pytest.raises(AnswerError, match="leads on"),
    ):
        await downloaded(server, tmp_path)


async def test_a_token_that_ends_in_mid_life_is_fetched_anew(tmp_path: Path) -> None:
    """The registry takes a token for two requests only, whatever was said of how long it is good."""
    given = 0
    used = 0

    def script(asked: Asked) -> Answer:
        nonlocal given, used
        if asked.path.startswith("/token"):
            given, used = given + 1, 0
            assert "scope=repository%3Aapp%3Apull" in asked.path
            return Answer(200, body=json.dumps({"token": f"t{given}", "expires_in": 3600}).encode())
        used += 1
        if asked.headers.get("authorization") != f"Bearer t{given}" or used > 2:
            realm = f'Bearer realm="http://{server.host}/token",service="x"'
            return Answer(401, {"WWW-Authenticate": realm})
        return ranged(asked)

    with scripted(script) as server:
        async with repository(server, tmp_path) as own:
            for start in range(0, 900, 100):
                assert await own.read_blob(DIGEST, start, start + 100) == BLOB[start : start + 100]
    assert given >= 4


async def test_a_registry_that_lets_nobody_in_says_so_once(tmp_path: Path) -> None:
    body = b'{"errors":[{"code":"DENIED","message":"not\\u0007 for you"}]}'
    refusal = Answer(401, {"WWW-Authenticate": 'Basic realm="x"'}, body)
    with scripted(in_turn(refusal)) as server:
        log_in(tmp_path, server.host, {"username": "ann", "password": "wrong"})
        async with repository(server, tmp_path) as own:
            with pytest.raises(AuthenticationError, match="not for you"):
                await own.manifest()
    assert len(server.asked) == 2


async def test_a_password_is_not_sent_to_a_plainer_authorisation_service(tmp_path: Path) -> None:
    asks = Answer(401, {"WWW-Authenticate": 'Bearer realm="http://auth.example/token",service="x"'})
    with scripted(in_turn(asks)) as server:
        async with repository(server, tmp_path) as own:
            with pytest.raises(AuthenticationError, match="not by TLS"):
                await own.manifest()


async def test_a_busy_registry_is_given_the_time_it_asks_for(tmp_path: Path) -> None:
    with scripted(in_turn(Answer(429, {"Retry-After": "0"}), Answer(500), ranged)) as server:
        async with repository(server, tmp_path) as own:
            assert await own.read_blob(DIGEST, 0, 10) == BLOB[:10]
    with scripted(in_turn(Answer(503))) as server:
        async with repository(server, tmp_path) as own:
            with pytest.raises(RefusedError) as caught:
                await own.read_blob(DIGEST, 0, 10)
    assert caught.value.status == 503
    assert len(server.asked) == 4


@pytest.mark.parametrize("told", ["\u00b2", "1e9", "-5", "Mon, 30 Nov 2099 00:00:00 GMT", "9" * 400])
async def test_no_time_that_a_registry_asks_for_is_too_odd_or_too_long(tmp_path: Path, told: str) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    with scripted(in_turn(Answer(429, {"Retry-After": told}), Answer(200, body=b"x"))) as server:
        async with Transport(server.host, options(tmp_path), sleep=sleep) as own:
            assert (await own.small("GET", "/v2/", scope="", limit=1))[1] == b"x"
    assert len(waits) == 1
    assert waits[0] <= MAX_RETRY_AFTER


@pytest.mark.parametrize("place", ["http://[", "https://a:port/", "http://\u00e9:99999999/", "file:///etc/passwd"])
async def test_what_leads_nowhere_is_refused(tmp_path: Path, place: str) -> None:
    with scripted(in_turn(Answer(307, {"Location": place}))) as server:
        async with repository(server, tmp_path) as own:
            with pytest.raises(AnswerError):
                await own.manifest()
    asks = Answer(401, {"WWW-Authenticate": f'Bearer realm="{place}",service="x"'})
    with scripted(in_turn(asks)) as server:
        async with repository(server, tmp_path) as own:
            with pytest.raises((AnswerError, AuthenticationError)):
                await own.manifest()


async def test_what_is_not_there_is_told_from_what_cannot_be_reached(tmp_path: Path) -> None:
    with scripted(in_turn(Answer(404))) as server:
        async with repository(server, tmp_path) as own:
            with pytest.raises(NotFoundError):
                await own.manifest()
            assert not await own.blobs.exists(DIGEST)
    reference = Reference.parse(f"127.0.0.1:{free_port()}/app")
    async with Repository(reference, options(tmp_path)) as own:
        with pytest.raises(RegistryUnreachableError) as caught:
            await own.manifest()
    assert "--plain-http" in caught.value.hint


async def test_a_manifest_that_is_not_its_digest_is_refused(tmp_path: Path) -> None:
    manifest = Answer(200, {"Content-Type": OCI_MANIFEST}, b'{"schemaVersion":2}')
    with scripted(in_turn(manifest)) as server:
        async with repository(server, tmp_path) as own:
            with pytest.raises(DigestMismatchError):
                await own.manifests.get("sha256:" + "0" * 64)
    told = Answer(200, {"Docker-Content-Digest": "sha256:" + "0" * 64}, b'{"schemaVersion":2}')
    with scripted(in_turn(told)) as server:
        async with repository(server, tmp_path) as own:
            with pytest.raises(DigestMismatchError):
                await own.manifest()


async def test_a_manifest_without_end_is_not_read(tmp_path: Path) -> None:
    with scripted(in_turn(Answer(200, body=bytes(5 << 20)))) as server:
        async with repository(server, tmp_path) as own:
            with pytest.raises(AnswerError, match="more than"):
                await own.manifest()


def test_another_machine_is_not_talked_to_without_tls(tmp_path: Path) -> None:
    reference = Reference.parse("registry.example:5000/app")
    with pytest.raises(PlainHttpRefusedError) as caught:
        Repository(reference, options(tmp_path))
    assert "--plain-http-host" in caught.value.hint
    told = options(tmp_path, plain_http=False, plain_http_hosts=frozenset({"registry.example:5000"}))
    assert told.base_url("registry.example:5000") == "http://registry.example:5000"
    assert told.base_url("other.example") == "https://other.example"


def test_a_file_of_no_certificates_is_named(tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match="missing"):
        options(tmp_path, authorities=tmp_path / "missing").tls()


def descriptors(count: int, start: int = 0) -> list[dict[str, object]]:
    return [
        {"mediaType": OCI_MANIFEST, "digest": f"sha256:{number:064x}", "size": 1, "artifactType": "a/b"}
        for number in range(start, start + count)
    ]


async def test_the_list_of_artifacts_is_read_to_its_last_page(tmp_path: Path) -> None:
    def page(asked: Asked) -> Answer:
        second = "page=2" in asked.path
        body = json.dumps({"schemaVersion": 2, "manifests": descriptors(2, 2 if second else 0)}).encode()
        following = {} if second else {"Link": f'<{asked.path}?page=2>; rel="next"'}
        return Answer(200, {"Content-Type": OCI_INDEX, **following}, body)

    with scripted(page) as server:
        async with repository(server, tmp_path) as own:
            assert len(await own.referrers.find(DIGEST, "a/b")) == 4
            assert await own.referrers.find(DIGEST, "other") == []


async def test_a_registry_without_the_list_keeps_it_under_a_tag(tmp_path: Path) -> None:
    kept: dict[str, bytes] = {}

    def script(asked: Asked) -> Answer:
        if "/referrers/" in asked.path:
            return Answer(200, {"Content-Type": "text/html"}, b"<p>what?")
        if asked.method == "PUT":
            kept[asked.path] = asked.body
            return Answer(201)
        body = kept.get(asked.path)
        return Answer(200, {"Content-Type": OCI_INDEX}, body) if body else Answer(404)

    with scripted(script) as server:
        async with repository(server, tmp_path) as own:
            other = Descriptor(OCI_MANIFEST, "sha256:" + "1" * 64, 1, artifact_type="c/d")
            for digit in "23":
                await own.referrers.add(DIGEST, other)
                artifact = Descriptor(OCI_MANIFEST, "sha256:" + digit * 64, 1, artifact_type="a/b")
                await own.referrers.add(DIGEST, artifact)
            assert [found.digest for found in await own.referrers.find(DIGEST, "a/b")] == ["sha256:" + "3" * 64]
            assert await own.referrers.find(DIGEST, "c/d") == [other]
    assert list(kept) == [f"/v2/app/manifests/{DIGEST.replace(':', '-')}"]


class UploadingRegistry:
    """Takes uploads in parts, and loses what `faults` says: an answer, or a part before it is stored."""

    def __init__(self, *faults: str) -> None:
        self.stored = b""
        self.blob: bytes | None = None
        self.faults = list(faults)

    def __call__(self, asked: Asked) -> Answer:
        if asked.method == "HEAD":
            return Answer(404 if self.blob is None else 200)
        if asked.method == "POST":
            self.stored = b""
            return Answer(202, {"Location": "/upload/1?state=a"})
        if asked.method == "GET":
            return Answer(204, {"Location": "/upload/1?state=b", "Range": f"0-{max(0, len(self.stored) - 1)}"})
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "lost":
            return Answer(cut=-1)
        if fault == "forgotten":
            self.stored = b""
            return Answer(404)
        if fault == "denied":
            return Answer(403)
        self.stored += asked.body
        if asked.method == "PUT":
            assert "state=" in asked.path
            assert f"digest=sha256%3A{DIGEST[7:]}" in asked.path or "digest=sha256" in asked.path
            self.blob = self.stored
        if fault == "answer lost":
            return Answer(cut=-1)
        return Answer(201 if asked.method == "PUT" else 202, {"Location": "/upload/1?state=c"})


@pytest.mark.parametrize(
    "faults",
    [
        (),
        ("lost",),
        ("answer lost",),
        ("", "answer lost"),
        ("", "lost", "lost"),
        ("", "forgotten"),
        ("", "", "answer lost"),
        ("", "", "lost"),
    ],
)
async def test_an_upload_goes_on_where_it_broke_off_and_arrives_whole(
    tmp_path: Path, faults: tuple[str, ...]
) -> None:
    content = os.urandom(1000) * (2 * PART // 1000 + 100)
    path = tmp_path / "blob"
    path.write_bytes(content)
    descriptor = Descriptor("", f"sha256:{hashlib.sha256(content).hexdigest()}", len(content))
    registry = UploadingRegistry(*faults)
    heard = 0

    def progress(count: int) -> None:
        nonlocal heard
        heard += count

    with scripted(registry) as server:
        async with repository(server, tmp_path) as own:
            assert await own.blobs.upload(descriptor, path, progress)
            assert registry.blob == content
            if "answer lost" not in faults:
                assert heard == len(content)
            assert not await own.blobs.upload(descriptor, path)


async def test_an_upload_that_is_not_allowed_is_not_tried_again(tmp_path: Path) -> None:
    with scripted(UploadingRegistry("denied")) as server:
        async with repository(server, tmp_path) as own:
            with pytest.raises(AuthenticationError):
                await own.blobs.upload_bytes(b"small")
    assert len(server.paths("PUT")) == 1


async def test_a_request_cancelled_in_its_handshake_leaves_no_connection(tmp_path: Path) -> None:
    async with silent_server() as server:
        reference = Reference.parse(f"127.0.0.1:{server.port}/app:v1")
        async with Repository(reference, options(tmp_path, plain_http=False)) as repo:
            await server.cut_off(repo.manifest())
