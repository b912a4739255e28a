"""LanguageTool's API, request by request, without a socket."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from importlib.metadata import version
from typing import Any

import httpx
import pytest

from copydesk.common.tasks import Outcome
from copydesk.gateway.app import build_app
from copydesk.gateway.keys import KeyRing
from copydesk.gateway.service import Gateway
from tests.fixtures.fake_pod import FakePod, refused
from tests.unit.gateway.conftest import Desk, eventually


def client_of(gateway: Gateway, keys: KeyRing | None = None) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(build_app(gateway, keys), raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://gateway")


@pytest.fixture
async def pod(desk: Desk) -> FakePod:
    return await desk.pod("a")


@pytest.fixture
async def gateway(desk: Desk, pod: FakePod) -> Gateway:
    return await desk.gateway(pod, max_body_bytes=2048, max_characters=500, body_timeout_ms=200)


@pytest.fixture
async def client(gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(gateway) as client:
        yield client


async def check(client: httpx.AsyncClient, text: str, **fields: str) -> Any:
    response = await client.post("/v2/check", data={"text": text, "language": "en-US", **fields})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/json"
    return response.json()


def plain(response: httpx.Response) -> tuple[int, str]:
    """The status and the stable code of an error, which must be plain text."""
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    assert response.text.startswith("Error: ")
    return response.status_code, response.headers["x-error-code"]


async def test_a_check_answers_in_the_shape_of_languagetool(client: httpx.AsyncClient) -> None:
    body = await check(client, "😀 They go home. I see.")
    (match,) = body.pop("matches")
    build_date = body["software"].pop("buildDate")
    assert build_date.endswith(" +0000")
    name = {"name": "English (US)", "code": "en-US"}
    assert body == {
        "software": {
            "name": "Copydesk",
            "version": version("copydesk-gateway"),
            "apiVersion": 1,
            "premium": False,
            "status": "",
        },
        "warnings": {"incompleteResults": False},
        "language": {**name, "detectedLanguage": {**name, "confidence": 1.0, "source": "configuration"}},
        "sentenceRanges": [[0, 16], [17, 23]],
    }
    assert match == {
        "message": "This may be a mistake of grammar: did you mean \u201cgoes\u201d?",
        "shortMessage": "Grammar",
        "replacements": [{"value": "goes"}],
        "offset": 8,
        "length": 2,
        "context": {"text": "😀 They go home. I see.", "offset": 8, "length": 2},
        "sentence": "😀 They go home.",
        "type": {"typeName": "Other"},
        "rule": {
            "id": "COPYDESK_GRAMMAR",
            "description": "A wrong form, a wrong word, one too many, or one that is missing",
            "issueType": "grammar",
            "category": {"id": "GRAMMAR", "name": "Grammar"},
            "isPremium": False,
        },
        "ignoreForIncompleteSentence": True,
        "contextForSureMatch": -1,
    }


async def test_a_check_by_get_answers_the_same(client: httpx.AsyncClient) -> None:
    fields = {"text": "They go home.", "language": "auto", "preferredVariants": "de-DE,en-GB"}
    response = await client.get("/v2/check", params=fields)
    body = response.json()
    assert [match["replacements"] for match in body["matches"]] == [[{"value": "goes"}]]
    assert body["language"]["code"] == body["language"]["detectedLanguage"]["code"] == "en-GB"


@pytest.mark.parametrize("text", ["", "   ", "\n\n"])
async def test_nothing_to_check_is_no_mistake(client: httpx.AsyncClient, text: str) -> None:
    body = await check(client, text)
    assert (body["matches"], body["sentenceRanges"]) == ([], [])


async def test_annotated_text_is_checked_without_its_markup(client: httpx.AsyncClient, pod: FakePod) -> None:
    annotation = [{"text": "They "}, {"markup": "<b>"}, {"text": "go"}, {"markup": "</b>"}, {"text": " home."}]
    fields = {"data": json.dumps({"annotation": annotation}), "language": "en-US"}
    response = await client.post("/v2/check", data=fields)
    assert pod.received == ["They go home."]
    body = response.json()
    assert [(match["offset"], match["length"]) for match in body["matches"]] == [(8, 2)]
    assert body["sentenceRanges"] == [[0, 20]]


@pytest.mark.parametrize(
    ("fields", "count"),
    [
        ({"disabledRules": "COPYDESK_GRAMMAR"}, 0),
        ({"disabledRules": "COPYDESK_SPELLING,OTHER"}, 1),
        ({"disabledCategories": "GRAMMAR"}, 0),
        ({"disabledCategories": "GRAMMAR", "enabledRules": "COPYDESK_GRAMMAR"}, 1),
        ({"enabledOnly": "true", "enabledCategories": "TYPOS"}, 0),
        ({"enabledOnly": "true", "enabledRules": "COPYDESK_GRAMMAR"}, 1),
        ({"level": "picky", "motherTongue": "de-DE", "username": "me", "apiKey": "none"}, 1),
        ({"mode": "textLevelOnly"}, 0),
    ],
)
async def test_rules_can_be_chosen(client: httpx.AsyncClient, fields: dict[str, str], count: int) -> None:
    assert len((await check(client, "They go home.", **fields))["matches"]) == count


async def test_sentences_that_the_model_did_not_take_are_told(client: httpx.AsyncClient, pod: FakePod) -> None:
    pod.answer = refused(Outcome.TRUNCATED)
    body = await check(client, "They go home. 123.")
    assert body["warnings"]["incompleteResults"] is True
    assert body["warnings"]["incompleteResultsReason"].startswith("Sentences left as they are: 1 ")


async def test_facts_are_told_without_a_key(gateway: Gateway) -> None:
    async with client_of(gateway, KeyRing((("web", hashlib.sha256(b"k1").digest()),))) as client:
        languages = (await client.get("/v2/languages")).json()
        assert {"name": "English (GB)", "code": "en", "longCode": "en-GB"} in languages
        info = (await client.get("/v2/info")).json()
        assert info["software"]["name"] == "Copydesk"
        length = await client.get("/v2/maxtextlength")
        assert (length.text, length.headers["content-type"]) == ("500", "text/plain; charset=utf-8")
        health = await client.get("/v2/healthcheck")
        assert (health.status_code, health.text) == (200, "OK")


async def test_with_keys_a_check_needs_one_in_the_header_or_in_its_field(gateway: Gateway) -> None:
    fields = {"text": "They go home.", "language": "en-US"}
    async with client_of(gateway, KeyRing((("web", hashlib.sha256(b"k1").digest()),))) as client:
        for wrong in ({}, {"apiKey": ""}, {"apiKey": "k2"}, {"username": "web", "apiKey": "k2"}):
            refused_check = await client.post("/v2/check", data={**fields, **wrong})
            assert plain(refused_check) == (401, "invalid_api_key")
            assert refused_check.headers["www-authenticate"] == "Bearer"
            assert "k2" not in refused_check.text
        for right in ({"apiKey": "k1"}, {"username": "web", "apiKey": "k1"}):
            assert (await client.post("/v2/check", data={**fields, **right})).status_code == 200
            assert (await client.get("/v2/check", params={**fields, **right})).status_code == 200
        bearer = {"Authorization": "Bearer k1"}
        assert (await client.post("/v2/check", data=fields, headers=bearer)).status_code == 200
        both = await client.post(
            "/v2/check", data={**fields, "apiKey": "k1"}, headers={"Authorization": "Bearer k2"}
        )
        assert plain(both) == (401, "invalid_api_key")


@pytest.mark.parametrize(
    ("fields", "status", "code", "said"),
    [
        ({"language": "en-US"}, 400, "missing_text", "Error: Missing 'text' or 'data' parameter"),
        ({"text": "a", "language": "gg"}, 400, "unknown_language", "Error: 'gg' is not a language code known to"),
        (
            {"text": "a" * 501, "language": "en"},
            413,
            "text_too_long",
            "Error: Your text exceeds the limit of 500 ",
        ),
        (
            {"text": "a" * 3000, "language": "en"},
            413,
            "body_too_large",
            "Error: The body is larger than 2048 bytes.",
        ),
    ],
)
async def test_wrong_requests_are_told_in_plain_text(
    client: httpx.AsyncClient, fields: dict[str, str], status: int, code: str, said: str
) -> None:
    response = await client.post("/v2/check", data=fields)
    assert plain(response) == (status, code)
    assert response.text.startswith(said)


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v2/words", 404, "not_found"),
        ("POST", "/v2/words/add", 404, "not_found"),
        ("POST", "/v2/words/delete", 404, "not_found"),
        ("GET", "/v2/nope", 404, "not_found"),
        ("GET", "/v2/", 404, "not_found"),
        ("POST", "/v2/check/", 404, "not_found"),
        ("DELETE", "/v2/check", 405, "method_not_allowed"),
        ("POST", "/v2/languages", 405, "method_not_allowed"),
        ("OPTIONS", "/v2/info", 405, "method_not_allowed"),
    ],
)
async def test_a_wrong_address_or_method_is_told_in_plain_text_too(
    client: httpx.AsyncClient, method: str, path: str, status: int, code: str
) -> None:
    response = await client.request(method, path)
    assert plain(response) == (status, code)
    assert ("allow" in response.headers) is (status == 405)


@pytest.mark.parametrize(
    ("behaviour", "status", "code", "retry"),
    [
        ("overload", 429, "overloaded", "3"),
        ("unavailable", 503, "pod_unavailable", "1"),
        ("crash", 502, "inference_failed", None),
    ],
)
async def test_troubles_of_the_fleet_are_told_in_plain_text(
    client: httpx.AsyncClient, pod: FakePod, behaviour: str, status: int, code: str, retry: str | None
) -> None:
    pod.behaviour = behaviour
    response = await client.post("/v2/check", data={"text": "They go home.", "language": "en-US"})
    assert plain(response) == (status, code)
    assert response.headers.get("retry-after") == retry


async def test_a_deadline_counts_here_too(client: httpx.AsyncClient, pod: FakePod) -> None:
    pod.behaviour = "hang"
    headers = {"X-Request-Deadline-Ms": "30"}
    response = await client.post("/v2/check", data={"text": "I go.", "language": "en-US"}, headers=headers)
    assert plain(response) == (504, "deadline_exceeded")


async def test_a_priority_that_is_none_is_refused(client: httpx.AsyncClient) -> None:
    fields = {"text": "I go.", "language": "en-US"}
    for priority, status in (("batch", 200), ("urgent", 400)):
        response = await client.post("/v2/check", data=fields, headers={"X-Request-Priority": priority})
        assert response.status_code == status
    assert plain(response) == (400, "invalid_priority")


async def test_without_pods_nothing_can_be_checked(desk: Desk) -> None:
    async with client_of(await desk.gateway(endpoint_wait_ms=10)) as client:
        health = await client.get("/v2/healthcheck")
        assert plain(health) == (503, "not_ready")
        assert health.headers["retry-after"] == "1"
        response = await client.post("/v2/check", data={"text": "I go.", "language": "en-US"})
        assert plain(response) == (503, "no_endpoints")
        assert response.headers["retry-after"] == "1"


async def test_a_mistake_of_our_own_is_plain_text_with_the_request_id(
    client: httpx.AsyncClient, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(gateway.corrector, "submit", broken)
    fields = {"text": "I go.", "language": "en-US"}
    response = await client.post("/v2/check", data=fields, headers={"X-Request-Id": "abc-1"})
    assert plain(response) == (500, "internal_error")
    assert "abc-1" in response.text
    assert "secret" not in response.text


async def test_a_client_that_leaves_takes_its_sentences_along(gateway: Gateway, pod: FakePod) -> None:
    pod.behaviour = "hang"
    app = build_app(gateway, None)
    gone = asyncio.Event()
    body = b"text=I+go+out.&language=en-US"
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> Any:
        for message in messages:
            return message
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        del message

    headers = [(b"content-type", b"application/x-www-form-urlencoded"), (b"content-length", b"%d" % len(body))]
    scope = {
        "type": "http", "method": "POST", "path": "/v2/check", "raw_path": b"/v2/check", "root_path": "",
        "query_string": b"", "headers": headers, "http_version": "1.1", "scheme": "http",
    }  # fmt: skip
    serving = asyncio.ensure_future(app(scope, receive, send))
    await eventually(lambda: pod.received)
    gone.set()
    await serving
    await eventually(lambda: pod.cancelled)
    assert gateway.fleet.pods["a"].ledger.in_flight == 0


async def test_a_text_of_many_sentences_is_told_whole(desk: Desk, pod: FakePod) -> None:
    gateway = await desk.gateway(pod, max_characters=20_000)
    async with client_of(gateway) as client:
        body = await check(client, "I go out. " * 450)
    assert len(body["sentenceRanges"]) == len(body["matches"]) == 450
    assert [match["offset"] for match in body["matches"]] == [10 * index + 2 for index in range(450)]


async def test_the_openapi_document_tells_these_routes(client: httpx.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()
    paths = document["paths"]
    assert {path for path in paths if path.startswith("/v2/")} == {
        "/v2/check",
        "/v2/healthcheck",
        "/v2/info",
        "/v2/languages",
        "/v2/maxtextlength",
    }
    form = document["components"]["schemas"]["CheckForm"]["properties"]
    assert {"text", "data", "language", "enabledOnly", "preferredVariants", "apiKey"} <= set(form)
    post, get = paths["/v2/check"]["post"], paths["/v2/check"]["get"]
    assert list(post["requestBody"]["content"]) == ["application/x-www-form-urlencoded"]
    headers = {"X-Request-Deadline-Ms", "X-Request-Priority"}
    assert {parameter["name"] for parameter in get["parameters"]} == set(form) | headers
    assert {parameter["name"] for parameter in post["parameters"]} == headers
    for route in (post, get):
        assert set(route["responses"]) == {"200", "400", "401", "408", "413", "429", "500", "502", "503", "504"}
        assert all(
            "text/plain" in answer["content"] for code, answer in route["responses"].items() if code != "200"
        )
