"""The REST API, request by request, without a socket."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator
from importlib.resources import files
from typing import Any

import httpx
import msgspec
import pytest

from copydesk.gateway.app import build_app
from copydesk.gateway.faults import ApiError
from copydesk.gateway.keys import KeyRing
from copydesk.gateway.schemas import ErrorBody, FleetBody, Health, ModelList, TextAnswer, TextsAnswer
from copydesk.gateway.service import Gateway
from copydesk.text import Edit, apply
from tests.fixtures.fake_pod import FakePod
from tests.unit.gateway.conftest import Desk, eventually


def client_of(gateway: Gateway, keys: KeyRing | None = None) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(build_app(gateway, keys), raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://gateway")


@pytest.fixture
async def pod(desk: Desk) -> FakePod:
    return await desk.pod("a")


@pytest.fixture
async def gateway(desk: Desk, pod: FakePod) -> Gateway:
    return await desk.gateway(pod, max_body_bytes=2048, body_timeout_ms=200)


@pytest.fixture
async def client(gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(gateway) as client:
        yield client


def error_of(response: httpx.Response) -> Any:
    assert response.headers["content-type"] == "application/json"
    return msgspec.json.decode(response.content, type=ErrorBody).error


async def test_a_text_comes_back_corrected_with_edits_that_give_it(client: httpx.AsyncClient) -> None:
    source = "\U0001f600 She go to school."
    response = await client.post("/v1/correct", json={"text": source})
    assert response.status_code == 200
    answer = msgspec.json.decode(response.content, type=TextAnswer)
    assert answer.corrected == "\U0001f600 She goes to school."
    edits = [Edit(edit.start, edit.end, edit.replacement) for edit in answer.edits]
    assert apply(source, edits) == answer.corrected
    assert (answer.model, answer.model_digest) == ("gec-en", "sha256:fake")
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 0
    assert answer.id == response.headers["x-request-id"]


async def test_several_texts_come_back_in_order(client: httpx.AsyncClient) -> None:
    response = await client.post("/v1/correct", json={"texts": ["I go out.", "Fine."], "model": "gec-en"})
    answer = msgspec.json.decode(response.content, type=TextsAnswer)
    assert [result.corrected for result in answer.results] == ["I goes out.", "Fine."]


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nope", 404, "not_found"),
        ("POST", "/v1/correct/", 404, "not_found"),
        ("GET", "/assets/../settings.py", 404, "not_found"),
        ("GET", "/assets/nope.js", 404, "not_found"),
        ("GET", "/v1/correct", 405, "method_not_allowed"),
        ("DELETE", "/v1/models", 405, "method_not_allowed"),
    ],
)
async def test_a_wrong_address_or_method_has_the_shape_of_all_errors(
    client: httpx.AsyncClient, method: str, path: str, status: int, code: str
) -> None:
    response = await client.request(method, path)
    assert (response.status_code, error_of(response).code) == (status, code)
    assert ("allow" in response.headers) is (status == 405)


async def test_a_body_beyond_the_limit_is_refused_with_the_limit(client: httpx.AsyncClient) -> None:
    response = await client.post("/v1/correct", json={"text": "a" * 3000})
    assert (response.status_code, error_of(response).code, error_of(response).limit) == (
        413,
        "body_too_large",
        2048,
    )


async def test_a_chunked_body_beyond_the_limit_is_refused_too(client: httpx.AsyncClient) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(30):
            yield b"a" * 100

    headers = {"content-type": "application/json"}
    response = await client.post("/v1/correct", content=chunks(), headers=headers)
    assert (response.status_code, error_of(response).code) == (413, "body_too_large")


async def test_the_wrong_content_type_is_refused(client: httpx.AsyncClient) -> None:
    response = await client.post("/v1/correct", content=b"text=hello", headers={"content-type": "text/plain"})
    assert (response.status_code, error_of(response).code) == (415, "unsupported_media_type")


async def test_a_bad_deadline_is_refused_and_a_short_one_kept(client: httpx.AsyncClient, pod: FakePod) -> None:
    bad = await client.post("/v1/correct", json={"text": "I go."}, headers={"X-Request-Deadline-Ms": "soon"})
    assert (bad.status_code, error_of(bad).param) == (400, "X-Request-Deadline-Ms")
    pod.behaviour = "hang"
    late = await client.post("/v1/correct", json={"text": "I go."}, headers={"X-Request-Deadline-Ms": "30"})
    assert (late.status_code, error_of(late).code) == (504, "deadline_exceeded")


async def test_back_pressure_says_when_to_return(client: httpx.AsyncClient, pod: FakePod) -> None:
    pod.behaviour = "overload"
    response = await client.post("/v1/correct", json={"text": "I go."})
    assert (response.status_code, response.headers["retry-after"]) == (429, "3")
    assert error_of(response).type == "rate_limit_error"


async def test_without_pods_the_answer_is_503_and_readiness_says_so(desk: Desk) -> None:
    async with client_of(await desk.gateway(endpoint_wait_ms=10)) as client:
        response = await client.post("/v1/correct", json={"text": "I go."})
        assert (response.status_code, error_of(response).code) == (503, "no_endpoints")
        assert "retry-after" in response.headers
        ready = await client.get("/readyz")
        assert ready.status_code == 503
        assert msgspec.json.decode(ready.content, type=Health).status == "no pod is ready"
        assert (await client.get("/healthz")).status_code == 200


async def test_a_mistake_of_our_own_is_a_500_with_the_request_id(
    client: httpx.AsyncClient, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(gateway.corrector, "submit", broken)
    response = await client.post("/v1/correct", json={"text": "I go."}, headers={"X-Request-Id": "abc-1"})
    assert (response.status_code, error_of(response).code) == (500, "internal_error")
    assert "abc-1" in error_of(response).message
    assert "secret" not in response.text
    assert response.headers["x-request-id"] == "abc-1"


@pytest.mark.parametrize("bad", ["", "has space", "x" * 129, "t\u00e9l", "a\tb"])
async def test_a_request_id_that_is_unfit_is_replaced(client: httpx.AsyncClient, bad: str) -> None:
    response = await client.get("/healthz", headers=[(b"x-request-id", bad.encode())])
    assert response.headers["x-request-id"].startswith("req-")


async def test_every_answer_carries_a_request_id(client: httpx.AsyncClient) -> None:
    for path in ("/", "/nope", "/metrics", "/openapi.json"):
        assert (await client.get(path)).headers["x-request-id"]


async def test_models_and_fleet_are_told(client: httpx.AsyncClient) -> None:
    models = msgspec.json.decode((await client.get("/v1/models")).content, type=ModelList)
    assert [(model.id, model.digest) for model in models.data] == [("gec-en", "sha256:fake")]
    fleet = msgspec.json.decode((await client.get("/v1/fleet")).content, type=FleetBody)
    assert [pod.id for pod in fleet.pods] == ["a"]


async def test_metrics_count_by_route_and_code(client: httpx.AsyncClient) -> None:
    await client.post("/v1/correct", json={"text": "I go out."})
    await client.post("/v1/correct", json={})
    await client.get("/no/such/path")
    text = (await client.get("/metrics")).text
    assert 'requests_total{route="/v1/correct",code="200"} 1' in text
    assert 'requests_total{route="/v1/correct",code="400"} 1' in text
    assert 'requests_total{route="unmatched",code="404"} 1' in text
    assert 'pods{state="ready"} 1' in text
    assert "requests_in_flight 1" in text


async def test_the_page_is_self_contained_and_says_so_to_the_browser(client: httpx.AsyncClient) -> None:
    page = await client.get("/")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assets = [f"/assets/{path.name}" for path in files("copydesk.gateway").joinpath("page").iterdir()]
    for name in ("/", "/fleet", "/docs", *assets):
        response = await client.get(name)
        assert response.status_code == 200
        assert response.headers["content-security-policy"] == page.headers["content-security-policy"]
        assert not re.search(r"[a-z]://|[\"'(]//|innerHTML|\son\w+=|<style|style=", response.text), name
        again = await client.get(name, headers={"If-None-Match": response.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


async def test_the_openapi_document_has_a_schema_for_each_reference(client: httpx.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()
    schemas = document["components"]["schemas"]

    def references(node: object) -> set[str]:
        if isinstance(node, dict):
            own = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
            return own.union(*(references(part) for part in node.values()))
        return set().union(*(references(part) for part in node)) if isinstance(node, list) else set()

    assert references(document) == {f"#/components/schemas/{name}" for name in schemas}
    correct = document["paths"]["/v1/correct"]["post"]
    assert set(correct["responses"]) >= {"200", "400", "404", "413", "415", "429", "503", "504"}
    assert schemas["CorrectRequest"]["additionalProperties"] is False
    assert schemas["CorrectRequest"]["properties"]["texts"]["maxItems"] == 256


async def test_with_keys_the_api_asks_for_one_and_health_does_not(gateway: Gateway) -> None:
    ring = KeyRing((("web", hashlib.sha256(b"k1").digest()),))
    async with client_of(gateway, ring) as client:
        for path in ("/v1/models", "/v1/fleet", "/metrics"):
            refused = await client.get(path)
            assert (refused.status_code, error_of(refused).code) == (401, "invalid_api_key")
            assert refused.headers["www-authenticate"] == "Bearer"
        assert (await client.post("/v1/correct", json={"text": "I go."})).status_code == 401
        assert (await client.get("/healthz")).status_code == 200
        key = {"Authorization": "Bearer k1"}
        assert (await client.post("/v1/correct", json={"text": "I go."}, headers=key)).status_code == 200


async def test_a_client_that_leaves_takes_its_sentences_along(gateway: Gateway, pod: FakePod) -> None:
    pod.behaviour = "hang"
    app = build_app(gateway, None)
    gone = asyncio.Event()
    messages = iter([{"type": "http.request", "body": b'{"text": "I go out."}', "more_body": False}])
    sent: list[Any] = []

    async def receive() -> Any:
        for message in messages:
            return message
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json"), (b"content-length", b"21")]
    scope = {
        "type": "http", "method": "POST", "path": "/v1/correct", "raw_path": b"/v1/correct", "root_path": "",
        "query_string": b"", "headers": headers, "http_version": "1.1", "scheme": "http",
    }  # fmt: skip
    serving = asyncio.ensure_future(app(scope, receive, send))
    await eventually(lambda: pod.received)
    gone.set()
    await serving
    await eventually(lambda: pod.cancelled)
    assert gateway.fleet.pods["a"].ledger.in_flight == 0
    assert 'code="499"} 1' in gateway.render_metrics()


def test_error_types_follow_the_status() -> None:
    assert ApiError(400, "x", "y").type == "invalid_request_error"
    assert ApiError(503, "x", "y").type == "server_error"
