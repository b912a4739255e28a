"""The gateway as a process, in front of a server that speaks only OpenAI-style HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import openai
import pytest

from tests.fixtures.nats import NatsServer
from tests.fixtures.openai_server import OpenAiServer
from tests.integration.gateway.conftest import Site, eventually

MODEL = "gec-en"


@pytest.fixture
async def server() -> AsyncIterator[OpenAiServer]:
    server = await OpenAiServer().start()
    yield server
    await server.stop()


@pytest.fixture
async def http(site: Site, nats_server: NatsServer, server: OpenAiServer) -> httpx.AsyncClient:
    """A client of a gateway that is ready to use the server."""
    (await site.discovery(nats_server)).announce(server.endpoint(capacity=8))
    client = await site.client(await site.gateway(nats_server.url))
    await eventually(lambda: ready(client))
    return client


async def ready(client: httpx.AsyncClient) -> bool:
    return (await client.get("/readyz")).status_code == 200


async def test_its_texts_and_corrections_reach_clients(http: httpx.AsyncClient, server: OpenAiServer) -> None:
    async with openai.AsyncOpenAI(
        base_url=str(http.base_url.join("/v1")), api_key="none", max_retries=0
    ) as client:
        stream = await client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "One two three."}], stream=True
        )
        assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == "One two three."
        whole = await client.completions.create(model=MODEL, prompt=["Four five.", "Six."], max_tokens=1)
        assert [choice.text for choice in whole.choices] == ["Four ", "Six."]
    corrected = await http.post("/v1/correct", json={"text": "The weather is nice. We go home."})
    assert corrected.json()["corrected"] == "The weather is nice. We go home."
    assert corrected.json()["usage"]["sentences"] == 2
    assert {path for path, _ in server.received} == {"/v1/chat/completions", "/v1/completions"}


async def test_it_is_found_again_after_it_was_away(http: httpx.AsyncClient, server: OpenAiServer) -> None:
    port = server.port
    await server.stop()

    async def lost() -> bool:
        return not await ready(http)

    await eventually(lost)
    answer = await http.post("/v1/completions", json={"prompt": "Once"})
    assert answer.status_code == 503
    await server.start(port)
    await eventually(lambda: ready(http))
    assert (await http.post("/v1/completions", json={"prompt": "Once"})).json()["choices"][0]["text"] == "Once"


async def test_a_client_that_leaves_ends_its_work(http: httpx.AsyncClient, server: OpenAiServer) -> None:
    server.behaviour = "hang"
    with pytest.raises(httpx.ReadTimeout):
        await http.post("/v1/completions", json={"prompt": "Once"}, timeout=0.5)

    async def gone() -> bool:
        return server.gone == 1

    await eventually(gone)
