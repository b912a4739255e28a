"""LanguageTool's clients against the gateway as a process: a real one, and the bytes that others send."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx
import language_tool_python
import pytest
import pytest_asyncio
from language_tool_python.exceptions import LanguageToolError

from copydesk.common.tasks import CorrectedSentence, Outcome
from tests.fixtures.fake_pod import FakePod
from tests.fixtures.nats import NatsServer, running_nats
from tests.integration.gateway.conftest import GatewayProcess, Site, eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

Returned = TypeVar("Returned")

MISTAKES = {
    "go": "goes",
    "recieved": "received",
    "monday": "Monday",
    "dog": "the dog",
    "Well": "Well,",
    "is is": "is",
}


def corrected(text: str) -> CorrectedSentence:
    """A correction of every kind, by rules."""
    for wrong, right in MISTAKES.items():
        text = f" {text} ".replace(f" {wrong} ", f" {right} ").strip()
    return CorrectedSentence(text, Outcome.CORRECTED, 1, 1)


@dataclass
class Answer:
    """One answer, whose body must be JSON."""

    status: int
    headers: dict[str, str]
    body: Any


async def answer_from(reader: asyncio.StreamReader) -> Answer:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    body = await reader.readexactly(int(headers["content-length"]))
    return Answer(int(first.split()[1]), headers, json.loads(body))


class Front:
    """A gateway with a pod that corrects by rules."""

    def __init__(self, gateway: GatewayProcess, client: httpx.AsyncClient) -> None:
        self.gateway = gateway
        self.client = client

    async def ask_client(
        self, ask: Callable[[language_tool_python.LanguageTool], Returned], **options: Any
    ) -> Returned:
        """Do something with the real client, which is not asynchronous, in a thread."""
        return await asyncio.to_thread(self._ask, ask, options)

    def _ask(
        self, ask: Callable[[language_tool_python.LanguageTool], Returned], options: dict[str, Any]
    ) -> Returned:
        with language_tool_python.LanguageTool("en-US", remote_server=self.gateway.url, **options) as tool:
            return ask(tool)

    async def send(self, *parts: bytes) -> Answer:
        """Send bytes, part by part, and return the answer."""
        (answer,) = await self.send_many(1, *parts)
        return answer

    async def send_many(self, count: int, *parts: bytes) -> list[Answer]:
        """Send bytes on one connection, and return so many answers."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.gateway.port)
        try:
            for part in parts:
                writer.write(part)
                await writer.drain()
            async with asyncio.timeout(15):
                return [await answer_from(reader) for _ in range(count)]
        finally:
            writer.close()


class House:
    """A pod and its discovery, for all tests of the module."""

    def __init__(self, site: Site, nats: NatsServer, pod: FakePod) -> None:
        self.pod = pod
        self._site = site
        self._nats = nats

    async def front(self, **settings: object) -> Front:
        """Start a gateway that is ready to use the pod."""
        gateway = await self._site.gateway(self._nats.url, **settings)
        client = await self._site.client(gateway)

        async def ready() -> bool:
            return (await client.get("/v2/healthcheck")).status_code == 200

        await eventually(ready)
        return Front(gateway, client)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    directory = tmp_path_factory.mktemp("house")
    async with AsyncExitStack() as stack:
        nats = stack.enter_context(running_nats(directory))
        site = Site(stack, directory)
        pod = await FakePod("a", answer=corrected).start()
        stack.push_async_callback(pod.stop)
        (await site.discovery(nats)).announce(pod.endpoint())
        yield House(site, nats, pod)


@pytest.fixture
def pod(house: House) -> FakePod:
    """The pod, which has received nothing yet."""
    house.pod.received.clear()
    return house.pod


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def front(house: House) -> Front:
    return await house.front()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def keyed(house: House, tmp_path_factory: pytest.TempPathFactory) -> Front:
    """A front that asks for an API key."""
    keys = tmp_path_factory.mktemp("keyed") / "keys"
    keys.write_text(f"writer:{hashlib.sha256(b'k1').hexdigest()}\n")
    return await house.front(api_keys_file=keys)


async def test_the_real_client_corrects_a_text_with_emoji_in_it(front: Front) -> None:
    text = "😀 Well she go home on monday with dog .\n\nHe is is here 👩‍🔬 and recieved it ."
    fixed = "😀 Well, she goes home on Monday with the dog .\n\nHe is here 👩‍🔬 and received it ."
    assert await front.ask_client(lambda tool: tool.correct(text)) == fixed


async def test_the_real_client_sees_rules_offsets_and_context(front: Front) -> None:
    text = "😀 I recieved it on monday ."
    first, second = await front.ask_client(lambda tool: tool.check(text))
    assert (first.rule_id, first.rule_issue_type, first.category) == ("COPYDESK_SPELLING", "misspelling", "TYPOS")
    assert text[first.offset : first.offset + first.error_length] == "recieved"
    assert first.replacements == ["received"]
    assert first.sentence == second.sentence == text
    assert (second.rule_id, second.category) == ("COPYDESK_CASING", "CASING")
    assert text[second.offset : second.offset + second.error_length] == "monday"


async def test_the_real_client_may_choose_rules_and_languages(front: Front) -> None:
    def ask(tool: language_tool_python.LanguageTool) -> list[int]:
        counts = [len(tool.check("I recieved it on monday ."))]
        tool.disable_spellchecking()
        counts.append(len(tool.check("I recieved it on monday .")))
        tool.language = "en-GB"
        tool.disabled_categories = set()
        tool.disabled_rules = {"COPYDESK_CASING", "COPYDESK_SPELLING"}
        counts.append(len(tool.check("I recieved it on monday .")))
        tool.disabled_rules = set()
        tool.enabled_rules_only, tool.enabled_rules = True, {"COPYDESK_CASING"}
        tool.picky, tool.mother_tongue = True, "en-AU"
        counts.append(len(tool.check("I recieved it on monday .")))
        return counts

    assert await front.ask_client(ask) == [2, 1, 0, 1]


async def test_the_real_client_is_told_what_is_wrong(front: Front) -> None:
    def ask(tool: language_tool_python.LanguageTool) -> None:
        tool.preferred_variants = {"en-GB"}
        tool.check("They go .")

    with pytest.raises(LanguageToolError, match="Error: You specified 'preferredVariants'"):
        await front.ask_client(ask)


async def test_the_real_client_is_told_that_a_key_is_needed(keyed: Front) -> None:
    with pytest.raises(LanguageToolError, match="Error: An API key is needed"):
        await keyed.ask_client(lambda tool: tool.correct("They go ."))


def offered(body: Any) -> list[tuple[int, int, str]]:
    return [(match["offset"], match["length"], match["replacements"][0]["value"]) for match in body["matches"]]


LIBREOFFICE = (
    b"POST /v2/check HTTP/1.1\r\n"
    b"Host: 127.0.0.1\r\n"
    b"User-Agent: LibreOffice 24.8.2.1 denylistedbackend/8.9.1 OpenSSL/3.0.14\r\n"
    b"Accept: */*\r\n"
    b"Content-Length: %d\r\n"
    b"Content-Type: application/x-www-form-urlencoded\r\n"
    b"\r\n"
)
LIBREOFFICE_BODY = (
    b"text=%F0%9F%98%80%20They%20go%20%E2%80%9Chome%E2%80%9D%20on%20monday%20.&language=en-US"
    b"&username=me%40example.org&apiKey=k1"
)


async def test_what_libreoffice_sends_is_checked(keyed: Front) -> None:
    """Everything but RFC 3986's unreserved characters in percent, name and key behind the rest."""
    answer = await keyed.send(LIBREOFFICE % len(LIBREOFFICE_BODY) + LIBREOFFICE_BODY)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert offered(answer.body) == [(8, 2, "goes"), (21, 6, "Monday")]
    assert {match["rule"]["category"]["id"] for match in answer.body["matches"]} == {"GRAMMAR", "CASING"}


LTEX = (
    b"POST /v2/check HTTP/1.1\r\n"
    b"Connection: Upgrade, HTTP2-Settings\r\n"
    b"Content-Length: %d\r\n"
    b"Host: 127.0.0.1\r\n"
    b"HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\n"
    b"Upgrade: h2c\r\n"
    b"User-Agent: Java-http-client/21.0.4\r\n"
    b"Content-Type: application/json\r\n"
    b"\r\n"
)
LTEX_BODY = (
    b"data=%7B%22annotation%22%3A%5B%7B%22text%22%3A%22They+go+to+%22%7D%2C%7B%22markup%22%3A%22%5C%5Ccite%7Ba%7D%22"
    b"%2C%22interpretAs%22%3A%22Dummy0%22%7D%2C%7B%22text%22%3A%22+on+%22%7D%2C%7B%22markup%22%3A%22%5C%5Cemph%7B%22"
    b"%7D%2C%7B%22text%22%3A%22monday%22%7D%2C%7B%22markup%22%3A%22%7D%22%7D%2C%7B%22text%22%3A%22+.%22%7D%5D%7D"
    b"&level=picky&language=en-US&motherTongue=de-DE&enabledRules=A%2CB"
)


LTEX_REQUEST = LTEX % len(LTEX_BODY) + LTEX_BODY


@pytest.mark.parametrize("size", [7, 300, 10_000])
async def test_what_ltex_sends_is_checked(front: Front, pod: FakePod, size: int) -> None:
    """A form that calls itself JSON, annotated text, and Java's offer of HTTP/2, which nobody has to take."""
    parts = [LTEX_REQUEST[start : start + size] for start in range(0, len(LTEX_REQUEST), size)]
    answer = await front.send(*parts)
    assert answer.status == 200
    assert pod.received == ["They go to Dummy0 on monday ."]
    assert offered(answer.body) == [(5, 2, "goes"), (29, 6, "Monday")]


async def test_requests_that_offer_http2_are_answered_one_after_the_other(front: Front) -> None:
    """Among them one for the hot path, and one that is chunked."""
    offer = b"Host: x\r\nConnection: keep-alive, upgrade\r\nUpgrade: h2c\r\n"
    hot = b"POST /v1/correct HTTP/1.1\r\n" + offer + b"Content-Type: application/json\r\n"
    chunked = b"POST /v2/check HTTP/1.1\r\n" + offer + b"Transfer-Encoding: chunked\r\n\r\n"
    requests = [
        LTEX_REQUEST,
        hot + b'Content-Length: 20\r\n\r\n{"text":"They go ."}',
        chunked + b"c\r\nlanguage=en&\r\n9\r\ntext=I+go\r\n0\r\n\r\n",
        b"GET /v2/info HTTP/1.1\r\n" + offer + b"\r\n",
        LTEX_REQUEST,
    ]
    first, second, third, fourth, last = await front.send_many(5, b"".join(requests))
    assert offered(first.body) == offered(last.body) == [(5, 2, "goes"), (29, 6, "Monday")]
    assert second.body["corrected"] == "They goes ."
    assert offered(third.body) == [(2, 2, "goes")]
    assert fourth.body["software"]["name"] == "Copydesk"


async def test_a_browser_extension_checks_sentences_and_whole_texts_apart(front: Front) -> None:
    fields = {
        "data": json.dumps({"annotation": [{"text": "They go home ."}]}),
        "language": "auto",
        "preferredVariants": "en-US,de-DE",
        "noopLanguages": "de,fr",
        "disabledRules": "WHITESPACE_RULE",
        "textSessionId": "17320:1650000000000",
        "enableHiddenRules": "true",
        "useragent": "chrome-extension-ng",
        "level": "picky",
    }
    answers = [
        (await front.client.post("/v2/check", data={**fields, "mode": mode})).json()
        for mode in ("allButTextLevelOnly", "textLevelOnly")
    ]
    assert [offered(answer) for answer in answers] == [[(5, 2, "goes")], []]
