"""Pages of other origins: what a browser is told, on every way into a gateway."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass

import httpx
import pytest

from copydesk.gateway.http.origins import Origins, usable_origins
from copydesk.gateway.keys import KeyRing
from copydesk.gateway.lane.native import load_native
from copydesk.gateway.service import Gateway
from copydesk.gateway.settings import GatewaySettings
from tests.fixtures.text_pod import TextPod
from tests.unit.gateway.conftest import Desk, eventually, snapshot
from tests.unit.gateway.serving import served

EDITOR = "https://editor.example"
STRANGER = "https://stranger.example"
RING = KeyRing((("web", hashlib.sha256(b"k1").digest()),))
CHAT = {"messages": [{"role": "user", "content": "a b c"}], "temperature": 0}
REQUESTS: dict[str, tuple[str, str, object]] = {
    "correct": ("POST", "/v1/correct", {"text": "She go out."}),
    "completions": ("POST", "/v1/completions", {"prompt": "a b", "temperature": 0}),
    "chat": ("POST", "/v1/chat/completions", CHAT),
    "stream": ("POST", "/v1/chat/completions", CHAT | {"stream": True}),
    "models": ("GET", "/v1/models", None),
    "languages": ("GET", "/v2/languages", None),
    "no such path": ("GET", "/v1/nothing", None),
    "wrong field": ("POST", "/v1/correct", {"x": 1}),
}


@dataclass(frozen=True)
class Ways:
    """Ways into one gateway, by name; and its pod."""

    clients: dict[str, httpx.AsyncClient]
    gateway: Gateway

    async def ask(self, case: str, origin: str, **headers: str) -> list[httpx.Response]:
        """Ask the same each way, twice, so that the head is known the second time."""
        method, path, body = REQUESTS[case]
        headers = {"Origin": origin} | headers
        return [
            await client.request(method, path, json=body, headers=headers)
            for client in self.clients.values()
            for _ in range(2)
        ]


async def opened(desk: Desk, stack: AsyncExitStack, **settings: object) -> Ways:
    pod = await desk.pod("a", kind=TextPod)
    gateway = Gateway(GatewaySettings(**settings), load_native())  # type: ignore[arg-type]
    stack.push_async_callback(gateway.close)
    gateway.fleet.apply(snapshot(pod.endpoint()))
    await eventually(lambda: gateway.fleet.eligible)
    clients = {
        name: await stack.enter_async_context(served(gateway, RING, hot=name == "hot")) for name in ("hot", "cold")
    }
    return Ways(clients, gateway)


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def ways(desk: Desk, stack: AsyncExitStack) -> Ways:
    return await opened(desk, stack, cors_origins=f"{EDITOR},http://localhost:3000")


async def test_a_page_that_is_let_in_may_read_every_answer(ways: Ways) -> None:
    for case in REQUESTS:
        for response in await ways.ask(case, EDITOR):
            assert response.headers.get_list("access-control-allow-origin") == [EDITOR], case
            assert response.headers["vary"] == "origin", case
            assert "x-request-id" in response.headers["access-control-expose-headers"], case


async def test_a_page_that_is_let_in_may_read_that_it_lacks_a_key(ways: Ways) -> None:
    for response in await ways.ask("correct", EDITOR, Authorization=""):
        assert response.status_code == 401
        assert response.headers["access-control-allow-origin"] == EDITOR


async def test_other_pages_may_read_nothing(ways: Ways) -> None:
    for case in REQUESTS:
        for response in await ways.ask(case, STRANGER):
            assert "access-control-allow-origin" not in response.headers, case
            assert response.headers["vary"] == "origin", case


async def test_each_page_is_told_of_its_own_origin_whoever_asked_before(ways: Ways) -> None:
    for origin in (EDITOR, "http://localhost:3000", EDITOR):
        for response in await ways.ask("chat", origin):
            assert response.headers["access-control-allow-origin"] == origin


async def test_the_compiled_lane_takes_requests_that_come_from_no_page_and_leaves_those_of_pages(
    ways: Ways,
) -> None:
    lane = ways.gateway.lane
    assert lane is not None

    def carried() -> float:
        lane.settle()
        (_, _, _, samples), *_ = lane.families()
        return sum(value for labels, value in samples if ("ending", "answered") in labels)

    await ways.ask("chat", EDITOR)
    assert carried() == 0
    for _ in range(3):
        response = await ways.clients["hot"].post("/v1/chat/completions", json=CHAT)
        assert "vary" not in response.headers
    assert carried() > 0


async def test_without_the_setting_nothing_is_said_of_origins(desk: Desk, stack: AsyncExitStack) -> None:
    ways = await opened(desk, stack)
    for case in REQUESTS:
        for response in await ways.ask(case, EDITOR):
            assert not [name for name in response.headers if name.startswith("access-control") or name == "vary"]
    for client in ways.clients.values():
        response = await client.options("/v1/correct", headers=preflight(EDITOR))
        assert (response.status_code, response.headers["allow"]) == (405, "POST")


def preflight(origin: str, *names: str) -> dict[str, str]:
    asked = {"Origin": origin, "Access-Control-Request-Method": "POST", "Authorization": ""}
    return asked | ({"Access-Control-Request-Headers": ",".join(names)} if names else {})


@pytest.mark.parametrize("path", ["/v1/correct", "/v1/completions", "/v1/chat/completions", "/v2/check"])
async def test_a_browser_that_asks_first_may_send_any_header_and_needs_no_key(ways: Ways, path: str) -> None:
    names = ("authorization", "content-type", "x-stainless-lang")
    for client in ways.clients.values():
        response = await client.options(path, headers=preflight(EDITOR, *names))
        assert (response.status_code, response.content) == (204, b"")
        assert response.headers.get_list("access-control-allow-origin") == [EDITOR]
        assert response.headers["access-control-allow-headers"] == ",".join(names)
        assert "POST" in response.headers["access-control-allow-methods"]
        assert int(response.headers["access-control-max-age"]) > 0


@pytest.mark.parametrize("path", ["/v1/correct", "/v2/check"])
async def test_a_browser_that_asks_for_a_stranger_is_told_which_setting_decides(ways: Ways, path: str) -> None:
    response = await ways.clients["hot"].options(path, headers=preflight(STRANGER))
    assert response.status_code == 403
    assert STRANGER in response.text
    assert "COPYDESK_GATEWAY_CORS_ORIGINS" in response.text
    assert "access-control-allow-origin" not in response.headers


async def test_options_that_no_browser_asks_are_what_they_were(ways: Ways) -> None:
    response = await ways.clients["hot"].options("/v1/correct", headers={"Origin": EDITOR})
    assert response.status_code == 405


def test_a_star_lets_everybody_in() -> None:
    origins = Origins(usable_origins("*"))
    assert dict(origins.headers({b"origin": b"null"}))[b"access-control-allow-origin"] == b"null"
    assert not origins.headers({b"host": b"x"})


@pytest.mark.parametrize(
    ("listed", "usable"),
    [
        ("", ""),
        (" https://a.example , http://B.example:81,", "https://a.example,http://b.example:81"),
        ("https://a.example:443,http://a.example:80", "https://a.example,http://a.example"),
        ("chrome-extension://abc", "chrome-extension://abc"),
        ("http://[::1]:3000", "http://[::1]:3000"),
    ],
)
def test_origins_are_spelt_as_browsers_spell_them(listed: str, usable: str) -> None:
    assert usable_origins(listed) == usable


@pytest.mark.parametrize(
    "listed", ["editor.example", "https://editor.example/", "https://*.example/a", "https://", "null"]
)
def test_what_no_browser_would_send_is_refused(listed: str) -> None:
    with pytest.raises(ValueError, match="is no origin"):
        usable_origins(listed)
