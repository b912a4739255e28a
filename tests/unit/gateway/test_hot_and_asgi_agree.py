"""The hot path and the documented route answer alike, over a real socket; and as the OpenAPI page says."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest

from copydesk.gateway.keys import KeyRing
from copydesk.gateway.service import Gateway
from tests.fixtures.fake_pod import FakePod
from tests.unit.gateway.conftest import Desk, eventually
from tests.unit.gateway.serving import served

JSON = {"Content-Type": "application/json"}
RING = KeyRing((("web", hashlib.sha256(b"k1").digest()),))

CASES: dict[str, tuple[bytes, dict[str, str]]] = {
    "one text": (b'{"text": "She go out."}', JSON),
    "texts": (b'{"texts": ["She go out.", "123"], "model": "gec-en", "language": "en-US"}', JSON),
    "batch": (b'{"text": "She go out.", "priority": "batch"}', JSON),
    "priority in a header": (b'{"text": "She go out."}', JSON | {"X-Request-Priority": "batch"}),
    "own id": (b'{"text": "She go out."}', JSON | {"X-Request-Id": "abc"}),
    "charset": (b'{"text": "She go out."}', {"Content-Type": "Application/JSON; charset=utf-8"}),
    "no content type": (b'{"text": "She go out."}', {}),
    "form": (b"text=a", {"Content-Type": "application/x-www-form-urlencoded"}),
    "no body": (b"", JSON),
    "no json": (b"{", JSON),
    "unknown field": (b'{"text": "a", "x": 1}', JSON),
    "blank": (b'{"text": " "}', JSON),
    "other model": (b'{"text": "a", "model": "gpt"}', JSON),
    "other language": (b'{"text": "a", "language": "de"}', JSON),
    "bad priority": (b'{"text": "a", "priority": "now"}', JSON),
    "bad priority in a header": (b'{"text": "a"}', JSON | {"X-Request-Priority": "now"}),
    "bad deadline": (b'{"text": "a"}', JSON | {"X-Request-Deadline-Ms": "soon"}),
    "too large": (b'{"text": "' + b"a" * 3000 + b'"}', JSON),
    "no key": (b'{"text": "a"}', JSON | {"Authorization": ""}),
    "wrong key": (b'{"text": "a"}', JSON | {"Authorization": "Bearer k2"}),
}

BEHAVIOURS = {
    "overload": 429,
    "unavailable": 503,
    "invalid": 400,
    "crash": 502,
    "garbage": 502,
    "hang": 504,
}


class Ways:
    """Both ways into one gateway."""

    def __init__(self, gateway: Gateway, pod: FakePod, hot: httpx.AsyncClient, cold: httpx.AsyncClient) -> None:
        self.gateway = gateway
        self.pod = pod
        self.hot = hot
        self.cold = cold

    async def both(self, body: bytes, headers: dict[str, str]) -> list[httpx.Response]:
        """Ask the same each way."""
        return [
            await client.post("/v1/correct", content=body, headers=headers) for client in (self.hot, self.cold)
        ]


@pytest.fixture
async def ways(desk: Desk) -> AsyncIterator[Ways]:
    pod = await desk.pod("a")
    gateway = await desk.gateway(pod, max_body_bytes=2048, body_timeout_ms=200, deadline_ms=1_500)
    async with AsyncExitStack() as stack:
        hot = await stack.enter_async_context(served(gateway, RING, hot=True))
        cold = await stack.enter_async_context(served(gateway, RING, hot=False))
        yield Ways(gateway, pod, hot, cold)


def essence(response: httpx.Response) -> tuple[int, object, dict[str, str]]:
    """What does not differ from one request to the next."""
    made_up = response.headers["x-request-id"]
    text = re.sub(r'"latency_ms":[0-9.]+', "", response.text.replace(made_up, "ID"))
    headers = {name: value for name, value in response.headers.items() if name not in ("date", "content-length")}
    headers["x-request-id"] = re.sub(r"req-[0-9a-f]{24}", "ID", made_up)
    return response.status_code, text, headers


async def test_both_ways_give_the_same_answer(ways: Ways) -> None:
    for case, (body, headers) in CASES.items():
        hot, cold = await ways.both(body, headers)
        assert essence(hot) == essence(cold), case


@pytest.mark.parametrize(("keys", "status"), [(("k1", "k2"), 401), (("k2", "k1"), 200)])
async def test_both_ways_take_the_same_of_two_keys(ways: Ways, keys: tuple[str, str], status: int) -> None:
    headers = [("Content-Type", "application/json"), *(("Authorization", f"Bearer {key}") for key in keys)]
    for client in (ways.hot, ways.cold):
        del client.headers["Authorization"]
        answer = await client.post("/v1/correct", content=b'{"text": "She go out."}', headers=headers)
        assert answer.status_code == status
    check = await ways.cold.post("/v2/check", content=b"text=a&language=auto", headers=headers[1:])
    assert check.status_code == status


async def test_both_ways_tell_the_same_of_a_failing_pod(ways: Ways) -> None:
    for behaviour, status in BEHAVIOURS.items():
        ways.pod.behaviour = behaviour
        hot, cold = await ways.both(b'{"text": "She go out."}', JSON)
        assert hot.status_code == status, behaviour
        assert essence(hot) == essence(cold), behaviour
        await eventually(lambda: ways.gateway.fleet.pods["a"].eligible)


async def test_both_ways_count_alike(ways: Ways) -> None:
    for case in ("one text", "blank"):
        await ways.both(*CASES[case])
    text = ways.gateway.render_metrics()
    assert 'requests_total{route="/v1/correct",code="200"} 2\n' in text
    assert 'requests_total{route="/v1/correct",code="400"} 2\n' in text
    assert 'request_seconds_count{route="/v1/correct",outcome="answered"} 2\n' in text
    assert 'request_seconds_count{route="/v1/correct",outcome="error"} 2\n' in text
    assert 'errors_total{route="/v1/correct",kind="blank_text",side="client"} 2\n' in text
    assert "requests_in_flight 0\n" in text


async def test_only_one_of_the_ways_is_hot(ways: Ways, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or else this whole file would compare the same thing with itself."""
    from copydesk.gateway.http import bridge

    made: list[object] = []
    monkeypatch.setattr(bridge.AsgiExchange, "answer", recorded(made, bridge.AsgiExchange.answer))
    await ways.hot.post("/v1/correct", content=CASES["one text"][0], headers=JSON)
    assert made == []
    await ways.cold.post("/v1/correct", content=CASES["one text"][0], headers=JSON)
    assert len(made) == 1


def recorded(made: list[object], original: Callable[..., Any]) -> Callable[..., Any]:
    def answer(exchange: object, inbox: object) -> Any:
        made.append(exchange)
        return original(exchange, inbox)

    return answer


async def test_what_is_answered_is_documented(ways: Ways) -> None:
    document = (await ways.cold.get("/openapi.json")).json()
    route = document["paths"]["/v1/correct"]["post"]
    for case, (body, headers) in CASES.items():
        response = await ways.hot.post("/v1/correct", content=body, headers=headers)
        documented = route["responses"][str(response.status_code)]["content"]
        schema = documented[response.headers["content-type"]]["schema"]
        assert complaints(response.json(), schema, document["components"]["schemas"]) == [], case


async def test_head_says_what_get_says_without_the_body(ways: Ways) -> None:
    for path in ("/healthz", "/readyz", "/", "/v2/healthcheck", "/metrics"):
        told, whole = await ways.hot.head(path), await ways.hot.get(path)
        assert (told.status_code, told.content) == (200, b""), path
        assert told.headers["content-type"] == whole.headers["content-type"]
        assert (await ways.hot.get("/healthz")).json() == {"status": "ok"}  # the connection is in step
    assert (await ways.hot.head("/v1/correct")).status_code == 405


async def test_what_is_behind_keys_is_documented_as_such(ways: Ways) -> None:
    document = (await ways.cold.get("/openapi.json")).json()
    assert document["components"]["securitySchemes"]["apiKey"]["scheme"] == "bearer"
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            url = path.replace("{model}", "gec-en")
            response = await ways.cold.request(method, url, headers={"Authorization": ""} | JSON)
            asked = response.status_code == 401
            assert asked == ("401" in operation["responses"]) == ("security" in operation)


async def test_each_documented_field_of_a_request_is_taken(ways: Ways) -> None:
    document = (await ways.cold.get("/openapi.json")).json()
    fields = document["components"]["schemas"]["CorrectRequest"]["properties"]
    values = {"text": "a", "texts": ["a"], "model": "gec-en", "priority": "batch", "language": "en"}
    assert set(fields) == set(values)
    for name, value in values.items():
        body = {"text": "a"} | {name: value} if name != "texts" else {name: value}
        response = await ways.hot.post("/v1/correct", content=json.dumps(body).encode(), headers=JSON)
        assert response.status_code == 200, name
    told = {parameter["name"] for parameter in document["paths"]["/v1/correct"]["post"]["parameters"]}
    assert told == {"X-Request-Deadline-Ms", "X-Request-Priority", "X-Request-Id"}


def complaints(value: object, schema: dict[str, Any], known: dict[str, Any], at: str = "$") -> list[str]:
    """Say where `value` is not as `schema` has it; fields that it does not name are complaints too."""
    if "$ref" in schema:
        return complaints(value, known[schema["$ref"].rpartition("/")[2]], known, at)
    for kind in ("oneOf", "anyOf"):
        if kind in schema and "properties" not in schema:
            found = [complaints(value, option, known, at) for option in schema[kind]]
            return [] if [] in found else min(found, key=len)
    if schema.get("type") == "object" or "properties" in schema:
        return _object_complaints(value, schema, known, at)
    if schema.get("type") == "array":
        if not isinstance(value, list):
            return [f"{at} is no array"]
        items = schema.get("items", {})
        return [
            one for index, item in enumerate(value) for one in complaints(item, items, known, f"{at}[{index}]")
        ]
    types: dict[str, tuple[type, ...]] = {
        "string": (str,),
        "integer": (int,),
        "number": (int, float),
        "boolean": (bool,),
        "null": (type(None),),
    }
    right = isinstance(value, types[schema["type"]]) if "type" in schema else True
    return [] if right else [f"{at} is no {schema['type']}"]


def _object_complaints(value: object, schema: dict[str, Any], known: dict[str, Any], at: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{at} is no object"]
    properties = schema["properties"]
    wrong = [f"{at}.{name} is missing" for name in schema.get("required", ()) if name not in value]
    wrong += [f"{at}.{name} is not documented" for name in value if name not in properties]
    for name in properties.keys() & value.keys():
        wrong += complaints(value[name], properties[name], known, f"{at}.{name}")
    return wrong
