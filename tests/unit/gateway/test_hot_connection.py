"""Requests that never become an ASGI call, on a connection made of nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

import pytest

from copydesk.gateway.faults import ApiError, overloaded
from copydesk.gateway.http.connection import MAX_UNREAD_BYTES
from copydesk.gateway.http.exchange import Exchange
from tests.unit.gateway.wire import Hot, post, turn


def echo(exchange: Exchange) -> None:
    exchange.respond(exchange.body)


async def test_a_request_reaches_its_handler_whole_and_without_a_task() -> None:
    hot = Hot()
    before = len(asyncio.all_tasks())
    hot.send(post(b'{"a": 1}', "X-Request-Id: abc", "Authorization: me"))
    (exchange,) = hot.taken
    assert (exchange.path, exchange.body, exchange.request_id) == ("/hot", b'{"a": 1}', "abc")
    assert (exchange.client, exchange.headers[b"host"], exchange.arrived) == ("me", b"x", 0.0)
    assert len(asyncio.all_tasks()) == before
    assert hot.asked == []


async def test_an_answer_is_one_write_and_the_connection_serves_on() -> None:
    hot = Hot(echo)
    hot.send(post(b'{"a": 1}', "X-Request-Id: abc"))
    assert hot.wire.writes == []
    await turn()
    (answer,) = hot.wire.writes
    head, body = answer.split(b"\r\n\r\n")
    assert head.split(b"\r\n") == [
        b"HTTP/1.1 200 OK",
        b"content-type: application/json",
        b"content-length: 8",
        b"x-request-id: abc",
        b"x-content-type-options: nosniff",
    ]
    assert body == b'{"a": 1}'
    hot.send(post())
    await turn()
    assert hot.wire.statuses == [200, 200]
    assert not hot.wire.closed


async def test_headers_of_an_answer_cannot_end_their_line() -> None:
    hot = Hot(lambda exchange: exchange.respond(b"", headers=[(b"x-a", b"b\r\nset-cookie: c")]))
    hot.send(post())
    await turn()
    assert b"set-cookie" not in hot.wire.written


async def test_a_body_may_come_in_pieces() -> None:
    hot = Hot(echo)
    whole = post(b'{"a": 1}')
    hot.send(*(whole[index : index + 1] for index in range(len(whole))))
    await turn()
    assert hot.wire.written.endswith(b'{"a": 1}')


async def test_pipelined_requests_wait_their_turn_and_are_answered_in_order() -> None:
    hot = Hot()
    hot.send(post(b"1") + post(b"2") + post(b"3"))
    assert [exchange.body for exchange in hot.taken] == [b"1"]
    assert hot.wire.paused
    hot.behave = echo
    hot.taken[0].respond(b"1")
    await turn()
    assert [exchange.body for exchange in hot.taken] == [b"1", b"2", b"3"]
    assert hot.wire.statuses == [200, 200, 200]
    assert len(hot.wire.writes) == 1
    assert not hot.wire.paused


async def test_hot_requests_and_others_take_turns_on_a_connection() -> None:
    hot = Hot(echo)
    hot.send(post() + b"GET /other HTTP/1.1\r\nHost: x\r\n\r\n" + post() + post(path="/another") + post())
    await turn()
    await turn()
    assert hot.wire.statuses == [200, 202, 200, 202, 200]
    assert hot.asked == ["/other", "/another"]


async def test_thousands_of_answers_made_at_once_behind_a_slow_one_are_no_recursion() -> None:
    hot = Hot()
    hot.send(post() * 3000)
    hot.behave = echo
    hot.taken[0].respond(b"")
    await turn()
    assert hot.wire.statuses == [200] * 3000


async def test_one_that_does_not_read_its_answers_is_given_no_more_of_them() -> None:
    hot = Hot(echo)
    hot.connection.pause_writing()
    hot.send(post(b"1"), post(b"2"))
    assert hot.taken == []
    assert hot.wire.paused
    hot.connection.resume_writing()
    await turn()
    assert hot.wire.statuses == [200, 200]
    assert not hot.wire.paused


@pytest.mark.parametrize(
    "request_bytes",
    [
        post(path="/hot?a=b"),
        post(path="/%68ot"),
        post(version="1.0"),
        post().replace(b"POST", b"PUT"),
        post(b"{}", "Expect: 100-continue"),
        post(b"a" * 1001),
        b"POST /hot HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /hot HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
async def test_what_is_not_plain_goes_the_other_way(request_bytes: bytes) -> None:
    hot = Hot()
    hot.send(request_bytes)
    await turn()
    assert hot.taken == []
    assert len(hot.asked) == 1


async def test_an_error_of_the_request_is_its_answer() -> None:
    def refuse(exchange: Exchange) -> None:
        raise overloaded(1500)

    hot = Hot(refuse)
    hot.send(post())
    await turn()
    assert hot.wire.statuses == [429]
    assert b"\r\nretry-after: 2\r\n" in hot.wire.written
    assert json.loads(hot.wire.written.partition(b"\r\n\r\n")[2])["error"]["code"] == "overloaded"
    assert hot.counted(429)


async def test_a_mistake_of_the_handler_is_a_500_that_names_the_request() -> None:
    def broken(exchange: Exchange) -> None:
        raise RuntimeError("secret")

    hot = Hot(broken)
    hot.send(post(b"{}", "X-Request-Id: abc"))
    await turn()
    assert hot.wire.statuses == [500]
    assert b"abc" in hot.wire.written.partition(b"\r\n\r\n")[2]
    assert b"secret" not in hot.wire.written
    assert hot.metrics.in_flight == 0


async def test_a_mistake_in_the_middle_of_an_answer_ends_the_connection() -> None:
    def broken(exchange: Exchange) -> None:
        exchange.begin(kind=b"text/plain")
        raise RuntimeError("late")

    hot = Hot(broken)
    hot.send(post())
    assert hot.wire.aborted


async def test_who_may_not_ask_is_refused_before_the_handler() -> None:
    def nobody(headers: object) -> str:
        raise ApiError(401, "invalid_api_key", "No.")

    hot = Hot()
    hot.path._authorize = nobody
    hot.send(post())
    await turn()
    assert hot.taken == []
    assert hot.wire.statuses == [401]
    assert b"\r\nwww-authenticate: Bearer\r\n" in hot.wire.written


async def test_a_body_that_is_no_json_by_its_own_account_is_refused() -> None:
    hot = Hot()
    hot.send(post().replace(b"application/json", b"text/plain"))
    await turn()
    assert hot.taken == []
    assert hot.wire.statuses == [415]


async def test_a_request_has_one_answer() -> None:
    hot = Hot()
    hot.send(post())
    hot.taken[0].respond(b"1")
    with pytest.raises(RuntimeError, match="already"):
        hot.taken[0].respond(b"2")
    with pytest.raises(RuntimeError, match="already"):
        hot.taken[0].begin(kind=b"text/plain")
    await turn()
    assert hot.wire.statuses == [200]


async def test_a_client_that_leaves_is_counted_and_its_work_cancelled_once() -> None:
    hot = Hot()
    hot.send(post() + post())
    left: list[str] = []
    hot.taken[0].on_gone = lambda: left.append("gone")
    hot.connection.connection_lost(None)
    assert left == ["gone"]
    assert hot.metrics.in_flight == 0
    hot.taken[0].respond(b"late")
    hot.taken[0].fail(overloaded(1))
    assert len(hot.taken) == 1
    assert hot.counted(499)
    assert not hot.counted(200)
    await turn()
    assert hot.wire.writes == []


async def test_after_its_answer_a_request_is_told_nothing_more() -> None:
    hot = Hot(echo)
    hot.send(post())
    left: list[str] = []
    hot.taken[0].on_gone = lambda: left.append("gone")
    await turn()
    hot.connection.connection_lost(None)
    assert left == []
    assert not hot.counted(499)


async def test_a_mistake_in_a_cancellation_does_not_reach_the_connection() -> None:
    def broken() -> None:
        raise RuntimeError("no")

    hot = Hot()
    hot.send(post())
    hot.taken[0].on_gone = broken
    hot.connection.connection_lost(None)
    assert hot.counted(499)


async def test_a_body_that_does_not_come_is_a_408_and_the_end() -> None:
    hot = Hot(patience=5)
    hot.send(post(b"{}", length=10))
    hot.clock.advance(4.9)
    await turn()
    assert hot.wire.writes == []
    hot.clock.advance(0.2)
    await turn()
    assert hot.wire.statuses == [408]
    assert b"\r\nconnection: close\r\n" in hot.wire.written
    assert hot.wire.closed
    hot.send(b"        ")
    assert hot.taken == []


async def test_a_body_has_its_time_from_when_it_is_its_turn() -> None:
    hot = Hot(patience=5)
    hot.send(post() + post(b"{", length=2))
    hot.clock.advance(60)
    hot.taken[0].respond(b"")
    hot.clock.advance(4)
    hot.send(b"}")
    assert [exchange.body for exchange in hot.taken] == [b"{}", b"{}"]


async def test_parts_of_one_turn_go_out_together_and_those_of_another_later() -> None:
    hot = Hot()
    hot.send(post())
    exchange = hot.taken[0]
    exchange.begin(kind=b"text/event-stream", headers=[(b"cache-control", b"no-store")])
    exchange.write(b"one")
    exchange.write(b"")
    exchange.write(b"two")
    await turn()
    (first,) = hot.wire.writes
    assert b"transfer-encoding: chunked\r\n" in first
    assert first.endswith(b"\r\n\r\n3\r\none\r\n3\r\ntwo\r\n")
    exchange.write(b"three")
    exchange.end()
    await turn()
    assert hot.wire.writes[1:] == [b"5\r\nthree\r\n0\r\n\r\n"]
    hot.send(post())
    assert len(hot.taken) == 2


async def test_a_client_that_does_not_read_a_streamed_answer_is_given_up() -> None:
    hot = Hot()
    hot.send(post())
    exchange = hot.taken[0]
    exchange.begin(kind=b"text/plain")
    await turn()
    hot.connection.pause_writing()
    hot.wire.unread = MAX_UNREAD_BYTES
    exchange.write(b"a")
    await turn()
    assert not hot.wire.aborted
    hot.wire.unread += 1
    exchange.write(b"b")
    await turn()
    assert hot.wire.aborted


async def test_a_client_that_wants_to_close_is_closed_after_its_answer() -> None:
    hot = Hot(echo)
    hot.send(post(b"{}", "Connection: close") + post())
    await turn()
    assert hot.wire.statuses == [200]
    assert b"\r\nconnection: close\r\n" in hot.wire.written
    assert hot.wire.closed


async def test_while_stopping_the_last_answer_on_a_connection_closes_it() -> None:
    hot = Hot()
    hot.send(post() + post())
    hot.lifecycle.stopping = True
    hot.behave = echo
    hot.taken[0].respond(b"")
    await turn()
    assert hot.wire.statuses == [200, 200]
    assert hot.wire.written.count(b"connection: close") == 1
    assert hot.wire.closed


async def test_a_shutdown_waits_for_what_is_underway() -> None:
    hot = Hot()
    hot.send(post())
    hot.connection.shutdown()
    assert not hot.wire.closed
    hot.taken[0].respond(b"")
    await turn()
    assert hot.wire.statuses == [200]
    assert hot.wire.closed


async def test_a_shutdown_closes_an_idle_connection() -> None:
    hot = Hot(echo)
    hot.send(post())
    await turn()
    hot.connection.shutdown()
    assert hot.wire.closed


async def test_what_is_no_request_is_refused_after_the_answers_before_it() -> None:
    hot = Hot()
    hot.send(post() + b"nonsense\r\n\r\n")
    await turn()
    assert hot.wire.writes == []
    assert hot.wire.paused
    hot.taken[0].respond(b"first")
    await turn()
    assert hot.wire.statuses == [200, 400]
    assert hot.wire.closed


async def test_a_refusal_waits_for_answers_that_wait_for_their_client() -> None:
    hot = Hot(echo)
    hot.connection.pause_writing()
    hot.send(post(b"0") + b"nonsense\r\n\r\n")
    assert hot.wire.writes == []
    hot.connection.resume_writing()
    await turn()
    assert hot.wire.statuses == [200, 400]
    assert hot.wire.closed


async def test_an_idle_connection_has_no_timer_of_its_own_for_each_request() -> None:
    hot = Hot(echo)
    timers = hot.clock.timers
    for _ in range(10):
        hot.send(post())
        await turn()
    assert hot.clock.timers <= timers + 1


async def test_requests_are_in_flight_from_their_turn_to_their_answer() -> None:
    hot = Hot()
    hot.send(post() + post())
    assert hot.metrics.in_flight == 1
    hot.taken[0].respond(b"")
    assert hot.metrics.in_flight == 1
    hot.taken[1].respond(b"")
    assert hot.metrics.in_flight == 0
    assert hot.state.total_requests == 2


async def test_a_head_that_has_come_before_is_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    hot = Hot(echo)
    request = post(b'{"a": 1}', "X-Mine: 1", "Authorization: me")
    hot.send(request)
    monkeypatch.setattr(hot.connection, "parser", None)
    hot.send(request.replace(b"1}", b"2}"))
    await turn()
    assert hot.wire.statuses == [200, 200]
    assert hot.wire.written.endswith(b'{"a": 2}')
    first, second = hot.taken
    assert (first.client, first.headers) == (second.client, second.headers)
    assert first.request_id != second.request_id


async def test_what_comes_of_a_known_head_does_not_depend_on_how_it_is_cut() -> None:
    hot = Hot(echo)
    request = post(b'{"a": 1}')
    hot.send(request)
    hot.send(
        request[:-1], request[-1:], request + request, request[:20], request[20:] + request[:30], request[30:]
    )
    await turn()
    assert hot.wire.statuses == [200] * 6
    assert [exchange.body for exchange in hot.taken] == [b'{"a": 1}'] * 6


async def test_a_known_head_waits_its_turn_too() -> None:
    hot = Hot(echo)
    hot.send(post(b"1"))
    hot.behave = lambda exchange: None
    hot.send(post(b"2"), post(b"3"))
    assert [exchange.body for exchange in hot.taken] == [b"1", b"2"]
    hot.taken[1].respond(b"")
    assert [exchange.body for exchange in hot.taken] == [b"1", b"2", b"3"]


@pytest.mark.parametrize(
    "request_bytes",
    [
        post(b"{}", "X-Request-Id: abc"),
        post(b"{}", "Connection: close"),
        post(b"{}", "X-Long: " + "a" * 3000),
        post(path="/hot?a=b"),
        b"GET /hot HTTP/1.1\r\n\r\n",
    ],
)
async def test_heads_that_will_not_come_again_or_are_not_hot_are_not_kept(request_bytes: bytes) -> None:
    hot = Hot(echo)
    hot.send(request_bytes)
    assert len(hot.path.known) == 0


@pytest.mark.parametrize("part", [b"POST /hot HTTP/1.1\r\n", b"\r\n\r\nPOST /hot HTTP/1.1\r\n", b"\r\n\r\n"])
async def test_a_part_of_a_head_is_not_taken_for_the_head_of_the_request_before(part: bytes) -> None:
    hot = Hot(echo)
    for start in (3, 4):  # where a head without its blank line, or one of nothing else, would end
        hot.send(post(b"a" * (len(part) - start), "Authorization: me"))
        await turn()
        heads = len(hot.path.known)
        hot.send(part)
        assert len(hot.path.known) == heads
        hot.send(post(b"{}").removeprefix(b"POST /hot HTTP/1.1\r\n") if part.endswith(b"1.1\r\n") else post(b"{}"))
        await turn()
    assert hot.wire.statuses == [200] * 4
    assert [exchange.client for exchange in hot.taken] == ["me", "", "me", ""]


class BusySeat:
    """A seat whose lane has a request, until more comes: then that is handed back."""

    def __init__(self, hot: Hot, request: bytes) -> None:
        self.stirred = False
        self._hot = hot
        self._request = request

    @property
    def busy(self) -> bool:
        return bool(self._request)

    def take(self, data: bytes) -> bool:
        self.recall()
        return False

    def recall(self) -> None:
        request, self._request = self._request, b""
        if request:
            self._hot.connection.resume(request)

    def close(self) -> None:
        self._request = b""


async def test_a_request_of_the_lane_is_answered_first_though_its_client_has_stopped_to_read() -> None:
    hot = Hot(echo)
    hot.connection._seat = BusySeat(hot, post(b"1"))
    hot.connection.pause_writing()
    hot.send(post(b"2"))
    hot.connection.resume_writing()
    await turn()
    assert [exchange.body for exchange in hot.taken] == [b"1", b"2"]


async def test_heads_that_are_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("copydesk.gateway.http.known.MOST_HEADS", 5)
    hot = Hot(echo)
    for number in range(12):
        hot.send(post(b"{}", f"X-A: {number}"))
        await turn()
        assert len(hot.path.known) <= 5
    assert hot.wire.statuses == [200] * 12


async def test_a_key_that_is_taken_back_is_refused_though_its_head_is_known() -> None:
    epoch: list[object] = [object()]
    allowed = {b"Bearer k1"}
    asked: list[object] = []

    def authorize(headers: Mapping[bytes, bytes]) -> str:
        asked.append(headers)
        if headers[b"authorization"] not in allowed:
            raise ApiError(401, "invalid_api_key", "No.")
        return "web"

    hot = Hot(echo)
    hot.path._authorize = authorize
    hot.path._epoch = lambda: epoch[0]
    request = post(b"{}", "Authorization: Bearer k1")
    for _ in range(4):
        hot.send(request)
        await turn()
    assert len(asked) == 2
    allowed.clear()
    epoch[0] = object()
    hot.send(request)
    await turn()
    assert hot.wire.statuses == [200, 200, 200, 200, 401]
    assert {exchange.client for exchange in hot.taken} == {"web"}
