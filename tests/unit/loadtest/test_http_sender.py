"""The sender for `POST /v1/correct`."""

from __future__ import annotations

import json
import socket
from typing import Any

import httpx
import pytest

from copydesk.loadtest import CorrectSender, Plan, RequestFailedError, open_client, run


def client(answer: httpx.Response | Exception, seen: list[httpx.Request] | None = None) -> httpx.AsyncClient:
    def handle(request: httpx.Request) -> httpx.Response:
        if seen is not None:
            seen.append(request)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return httpx.AsyncClient(transport=httpx.MockTransport(handle), base_url="http://gateway")


async def test_texts_are_sent_in_turn_and_answers_handed_on() -> None:
    seen: list[httpx.Request] = []
    answers: list[tuple[int, dict[str, Any]]] = []
    async with client(httpx.Response(200, json={"corrected": "é"}), seen) as http:
        sender = CorrectSender(http, ["é one", "two"], on_answer=lambda index, body: answers.append((index, body)))
        for index in (0, 1, 2):
            await sender(index)
    assert [json.loads(request.content) for request in seen] == [
        {"text": "é one"},
        {"text": "two"},
        {"text": "é one"},
    ]
    assert {(request.method, request.url.path) for request in seen} == {("POST", "/v1/correct")}
    assert {request.headers["content-type"] for request in seen} == {"application/json"}
    assert answers == [(index, {"corrected": "é"}) for index in (0, 1, 2)]


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        (httpx.Response(429, text='{"error":"busy"}'), "http_429", '{"error":"busy"}'),
        (httpx.Response(500, text=""), "http_500", ""),
        (httpx.Response(204), "http_204", ""),
        (httpx.Response(200, text="<html>"), "not_json", "malformed"),
        (httpx.Response(200, text="[1]"), "not_json", "object"),
        (httpx.ReadTimeout("too slow"), "ReadTimeout", "too slow"),
        (httpx.RemoteProtocolError("gone"), "RemoteProtocolError", "gone"),
    ],
)
async def test_what_is_no_good_answer_fails_with_its_kind(
    answer: httpx.Response | Exception, kind: str, message: str
) -> None:
    async with client(answer) as http:
        with pytest.raises(RequestFailedError) as caught:
            await CorrectSender(http, ["a"])(0)
    assert caught.value.kind == kind
    assert message in caught.value.message


async def test_a_run_against_a_closed_port_reports_refused_connections() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    async with open_client(f"http://127.0.0.1:{port}") as http:
        report = await run(Plan((0.0, 0.0, 0.0), 3.0), CorrectSender(http, ["a"]))
    assert [(failures.kind, failures.count) for failures in report.failures] == [("ConnectError", 3)]


def test_a_sender_without_texts_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        CorrectSender(httpx.AsyncClient(), [])
