"""Many requests that come at once: few are parsed before they have their turn, and each has its answer in it."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from copydesk.gateway.http import protocol
from copydesk.gateway.http.exchange import Exchange
from copydesk.gateway.http.protocol import HEAD_SECONDS, MAX_HEAD_BYTES, SLICE_BYTES
from tests.fuzz.hostile_bytes import pieces
from tests.unit.gateway.wire import Hot, post, turn

READ = 256 * 1024
"""What uvloop reads at once."""

HIGH_WATER = 64 * 1024
SHORTEST = b"GET / HTTP/1.1\r\n\r\n"
SHORTEST_HOT = b"POST /hot HTTP/1.1\r\ncontent-length:0\r\n\r\n"


def echo(exchange: Exchange) -> None:
    exchange.respond(exchange.body)


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


def reads(hot: Hot) -> bool:
    return not hot.wire.paused


def a_read_of(request: bytes) -> bytes:
    return request * (READ // len(request))


@pytest.fixture
async def hot() -> Hot:
    return Hot(echo, limit=1 << 20)


def stop_reading_at(hot: Hot, most: int) -> None:
    """Let the client take nothing, and the transport say so, as transports do, from within a write."""
    write = hot.wire.write
    unread = 0

    def limited(data: bytes) -> None:
        nonlocal unread
        unread += len(data)
        write(data)
        if unread > most:
            hot.connection.pause_writing()

    hot.wire.write = limited  # type: ignore[method-assign]


@pytest.mark.parametrize("request_bytes", [SHORTEST, SHORTEST_HOT])
async def test_a_client_that_reads_nothing_has_few_requests_parsed(hot: Hot, request_bytes: bytes) -> None:
    hot.connection.pause_writing()
    tracemalloc.start()
    try:
        hot.send(a_read_of(request_bytes))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    await turn()
    assert 0 < len(hot.connection.pipeline) <= SLICE_BYTES // len(request_bytes) + 1
    assert not reads(hot)
    assert kept < 2.5 * READ


@pytest.mark.parametrize("request_bytes", [SHORTEST, SHORTEST_HOT])
async def test_one_that_waits_for_an_answer_has_few_parsed(request_bytes: bytes) -> None:
    hot = Hot()
    hot.send(post(b"{}") + a_read_of(request_bytes))
    assert len(hot.connection.pipeline) <= SLICE_BYTES // len(request_bytes) + 1


async def test_answers_that_are_made_at_once_do_not_pile_up_for_a_client_that_reads_nothing(hot: Hot) -> None:
    stop_reading_at(hot, HIGH_WATER)
    hot.send(a_read_of(SHORTEST_HOT))
    await turn()
    assert HIGH_WATER < len(hot.wire.written) < 2 * HIGH_WATER
    assert len(hot.connection.pipeline) <= SLICE_BYTES // len(SHORTEST_HOT) + 1


@pytest.mark.parametrize("request_bytes", [SHORTEST, SHORTEST_HOT, SHORTEST + SHORTEST_HOT])
async def test_all_of_a_read_are_answered_once_the_client_reads(hot: Hot, request_bytes: bytes) -> None:
    hot.connection.pause_writing()
    hot.send(request_bytes * 200)
    hot.connection.resume_writing()
    while hot.connection.has_more:
        await turn()
    await turn()
    each = {SHORTEST: [202], SHORTEST_HOT: [415]}.get(request_bytes, [202, 415])
    assert hot.wire.statuses == each * 200
    assert reads(hot)


class Stream:
    """Requests one behind the other, and what is to come of each."""

    def __init__(self, kinds: Sequence[str]) -> None:
        self.data = b""
        self.answers: list[tuple[int, bytes]] = []
        self.asked: list[str] = []
        for number, kind in enumerate(kinds):
            self._add(kind, number)

    def _add(self, kind: str, number: int) -> None:
        body, path = b"%d" % number, f"/{number}"
        if kind == "hot":
            self.data += post(body)
        elif kind == "unique":
            self.data += post(body, f"X-Request-Id: {number}")
        elif kind == "large":
            body *= 700
            self.data += post(body)
        elif kind == "offer":
            self.data += post(body, "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c")
        elif kind == "chunked":
            self.data += b"POST %b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" % path.encode()
            self.data += b"5\r\nhello\r\n1;a=b\r\n!\r\n0\r\nX-Trailer: a\r\n\r\n"
        else:
            self.data += get(path)
        if kind in ("hot", "unique", "large", "offer"):
            self.answers.append((200, body))
        else:
            self.answers.append((202, b""))
            self.asked.append(path)


KINDS = ("hot", "unique", "large", "offer", "chunked", "get")
streams = st.lists(st.sampled_from(KINDS), min_size=1, max_size=12).map(Stream)


def answers(written: bytes) -> Iterator[tuple[int, bytes]]:
    while written:
        head, _, written = written.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        assert length is not None
        size = int(length[1])
        yield int(head[9:12]), written[:size]
        written = written[size:]


async def check(stream: Stream, parts: Sequence[bytes], size: int, *, late: bool, deaf: Sequence[bool]) -> None:
    """Send these parts, cut anew into slices of `size`; now and then, the client does not read for a while."""
    hot = Hot(echo, limit=1 << 20)
    waiting: list[Exchange] = []
    if late:
        hot.behave = waiting.append
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, "SLICE_BYTES", size)
        for number, part in enumerate(parts):
            if deaf[number % len(deaf)]:
                hot.connection.pause_writing()
            else:
                hot.connection.resume_writing()
                await turn()
            hot.send(part)
            assert hot.connection.pipeline or not hot.connection.has_more
        hot.connection.resume_writing()
        while hot.connection.has_more or waiting or hot.connection._active is not None:
            while waiting:
                echo(waiting.pop(0))
            await turn()
    await turn()
    assert list(answers(hot.wire.written)) == stream.answers
    assert hot.asked == stream.asked
    assert reads(hot)
    assert not hot.wire.closed


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    stream=streams,
    cuts=st.lists(st.integers(0, 1 << 16), max_size=5),
    size=st.integers(1, 200) | st.just(SLICE_BYTES),
    late=st.booleans(),
    deaf=st.lists(st.booleans(), min_size=1, max_size=4),
)
async def test_answers_come_in_the_order_of_their_requests(
    stream: Stream, cuts: list[int], size: int, late: bool, deaf: list[bool]
) -> None:
    await check(stream, pieces(stream.data, cuts), size, late=late, deaf=deaf)


@pytest.mark.parametrize("late", [False, True])
async def test_it_does_not_matter_where_a_slice_ends(late: bool) -> None:
    stream = Stream(["hot", "get", "offer", "chunked", "unique", "get", "hot"])
    for size in range(1, len(stream.data) + 1):
        await check(stream, [stream.data], size, late=late, deaf=[size % 2 == 0])


async def test_what_is_no_request_is_refused_in_its_turn_and_nothing_behind_it_is_taken() -> None:
    hot = Hot()
    hot.send(post(b"0") + get("/1") * 100 + b"nonsense\r\n\r\n" + get("/2") * 100)
    await turn()
    assert hot.wire.writes == []
    echo(hot.taken[0])
    while not hot.wire.closed:
        await turn()
    assert hot.wire.statuses == [200] + [202] * 100 + [400]
    assert hot.asked == ["/1"] * 100


async def test_what_is_refused_leaves_nothing_to_be_parsed() -> None:
    hot = Hot()
    hot.send(post(b"0") + post(b"1") + b"nonsense\r\n\r\n" + a_read_of(SHORTEST))
    assert not hot.connection.flow.rest
    assert not reads(hot)


@pytest.mark.parametrize("request_bytes", [b"nonsense\r\n\r\n", b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n"])
async def test_what_is_no_request_is_the_fault_of_its_client_though_an_answer_to_a_fault_comes_before_it(
    request_bytes: bytes,
) -> None:
    hot = Hot()
    hot.send(post(b"0") + post(b"1") * 100 + request_bytes)
    hot.behave = echo
    try:
        raise LookupError
    except LookupError:  # the rest is parsed where this is handled
        echo(hot.taken[0])
    await turn()
    assert hot.wire.statuses == [200] * 101 + [400]


async def test_a_mistake_of_ours_in_a_callback_is_no_fault_of_the_client(
    hot: Hot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hot.path, "fits", lambda headers: 1 // 0)
    hot.send(post(b"0"))
    assert hot.wire.statuses == [500]
    assert hot.wire.closed


async def test_a_connection_that_is_gone_keeps_nothing(hot: Hot) -> None:
    hot.connection.pause_writing()
    hot.send(a_read_of(SHORTEST_HOT))
    hot.wire.close()
    hot.connection.connection_lost(None)
    await turn()
    assert not hot.connection.has_more
    assert hot.taken == []


async def test_what_comes_though_the_connection_is_closed_is_not_kept(hot: Hot) -> None:
    hot.wire.close()
    hot.send(a_read_of(SHORTEST))
    assert not hot.connection.has_more


@pytest.mark.parametrize(
    "request_bytes", [post(b"", "Connection: close"), get("/a")[:-2] + b"Connection: close\r\n\r\n"]
)
async def test_what_comes_behind_the_last_request_is_never_looked_at(hot: Hot, request_bytes: bytes) -> None:
    hot.send(request_bytes + a_read_of(SHORTEST_HOT))
    await turn()
    assert len(hot.wire.statuses) == 1
    assert hot.wire.closed
    hot.send(SHORTEST_HOT)
    await turn()
    assert len(hot.wire.statuses) == 1


@pytest.mark.parametrize("size", [SLICE_BYTES, len(post(b"00"))])
async def test_what_comes_while_requests_are_kept_comes_behind_them(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(protocol, "SLICE_BYTES", size)
    hot = Hot(echo)
    hot.send(post(b"00"))  # from now on, its head is known
    await turn()
    hot.behave = lambda exchange: None
    numbers = [b"%02d" % number for number in range(100)]
    hot.send(b"".join(post(number) for number in numbers[:98]))
    hot.send(post(numbers[98]), post(numbers[99]))  # a transport may have had these already
    hot.behave = echo
    echo(hot.taken[1])
    await turn()
    assert [exchange.body for exchange in hot.taken[1:]] == numbers
    assert hot.wire.statuses == [200] * 101


async def test_an_application_that_waits_for_its_client_has_no_more_read_while_requests_are_kept() -> None:
    hot = Hot()
    hot.send(get("/1") + post(b"0") * 100)
    assert not reads(hot)
    await turn()
    assert hot.asked == ["/1"]
    assert not reads(hot)
    hot.behave = echo
    echo(hot.taken[0])
    assert reads(hot)


async def test_an_application_that_waits_for_its_client_has_one_more_read_while_a_request_waits() -> None:
    hot = Hot()
    hot.send(post(b"0") + post(b"1"))
    hot.connection.flow.resume_reading()  # as uvicorn does for it
    assert reads(hot)
    hot.send(get("/2"))
    assert not reads(hot)
    assert len(hot.connection.pipeline) == 1


class Lane:
    """A seat that would take whatever it is given."""

    busy = stirred = False

    def __init__(self) -> None:
        self.taken: list[bytes] = []

    def take(self, data: bytes) -> bool:
        self.taken.append(data)
        return True

    def recall(self) -> None:
        pass

    def close(self) -> None:
        pass


async def test_the_lane_overtakes_nothing() -> None:
    hot = Hot()
    hot.send(post(b"0") * 100)
    hot.connection._seat = lane = Lane()
    hot.send(post(b"1"))
    hot.behave = echo
    echo(hot.taken[0])
    assert lane.taken == []
    hot.send(post(b"2"))
    assert lane.taken == [post(b"2")]


async def test_what_comes_with_a_request_for_a_tunnel_is_dropped_with_it(hot: Hot) -> None:
    hot.send(b"CONNECT /x HTTP/1.1\r\nHost: x\r\n\r\n" + get("/") * 200)
    await turn()
    assert hot.wire.statuses == [202]
    assert not hot.connection.has_more


@pytest.mark.parametrize("path", ["/hot", "/other"])
async def test_a_large_body_is_one_request_and_is_not_kept(hot: Hot, path: str) -> None:
    hot.send(post(b"a" * READ, path=path))
    assert not hot.connection.has_more
    await turn()
    assert hot.wire.statuses == [200 if path == "/hot" else 202]


async def test_a_large_body_that_waits_is_there_in_its_turn(hot: Hot) -> None:
    hot.connection.pause_writing()
    hot.send(post(b"0") + post(b"a" * READ), b"")
    assert hot.connection.has_more
    hot.connection.resume_writing()
    await turn()
    assert [len(exchange.body) for exchange in hot.taken] == [1, READ]


async def test_a_part_of_a_body_that_is_kept_has_the_other_part_read_in_its_turn() -> None:
    hot = Hot(limit=1 << 20)
    hot.send(post(b"0") + post(b"a" * 10_000)[:-1])
    assert not reads(hot)
    hot.behave = echo
    echo(hot.taken[0])
    assert reads(hot)
    hot.send(b"a")
    assert [len(exchange.body) for exchange in hot.taken] == [1, 10_000]


@pytest.mark.parametrize("before", [b"", post(b"0") * 100])
async def test_a_head_that_is_too_large_is_refused_though_it_comes_at_once(hot: Hot, before: bytes) -> None:
    hot.send(
        before + b"GET / HTTP/1.1\r\nX: " + b"a" * (MAX_HEAD_BYTES + 2 * SLICE_BYTES) + b"\r\n\r\n" + get("/")
    )
    await turn()
    assert hot.wire.statuses == [200] * (100 if before else 0) + [431]
    assert hot.wire.closed


async def test_a_head_that_is_kept_is_not_late() -> None:
    hot = Hot(echo)
    hot.behave = lambda exchange: None
    hot.send(post(b"0") * 100 + get("/")[:-2])
    hot.clock.advance(10 * HEAD_SECONDS)
    hot.behave = echo
    echo(hot.taken[0])
    await turn()
    assert hot.wire.statuses == [200] * 100
    hot.clock.advance(HEAD_SECONDS - 1)
    assert not hot.wire.closed
    hot.clock.advance(1)
    assert hot.wire.statuses == [200] * 100 + [408]


async def test_a_head_whose_client_is_not_read_is_not_late() -> None:
    hot = Hot()
    hot.send(post(b"0") + post(b"1") + get("/")[:-2])
    assert not reads(hot)
    hot.clock.advance(HEAD_SECONDS - 1)
    echo(hot.taken[0])
    echo(hot.taken[1])
    hot.clock.advance(1)
    assert not hot.wire.closed
    hot.clock.advance(HEAD_SECONDS)
    await turn()
    assert hot.wire.statuses == [200, 200, 408]


@pytest.mark.parametrize("request_bytes", [get("/"), post(b"0")])
async def test_a_shutdown_answers_all_that_has_come(request_bytes: bytes) -> None:
    hot = Hot()
    hot.send(post(b"0") + request_bytes * 100)
    hot.connection.shutdown()
    assert not hot.wire.closed
    hot.behave = echo
    echo(hot.taken[0])
    while hot.connection.has_more:
        await turn()
    await turn()
    assert len(hot.wire.statuses) == 101
    assert hot.wire.closed


async def test_a_shutdown_loses_no_answer_that_was_just_made(hot: Hot) -> None:
    hot.send(post(b"0"))
    hot.connection.shutdown()
    await turn()
    assert hot.wire.statuses == [200]
    assert hot.wire.closed


async def test_while_stopping_no_answer_but_the_last_closes() -> None:
    hot = Hot()
    hot.send(post(b"0") + post(b"1") * 100)
    hot.lifecycle.stopping = True
    hot.behave = lambda exchange: None
    while len(hot.taken) <= 100:
        echo(hot.taken[-1])
    echo(hot.taken[-1])
    await turn()
    assert hot.wire.statuses == [200] * 101
    assert hot.wire.written.count(b"connection: close") == 1
    assert hot.wire.closed


async def test_while_stopping_an_answer_that_is_made_at_once_closes_only_with_the_last_slice() -> None:
    hot = Hot()
    hot.send(post(b"0") + post(b"1") * 100)
    hot.lifecycle.stopping = True
    hot.behave = echo
    echo(hot.taken[0])
    await turn()
    assert len(hot.wire.statuses) > 100 - SLICE_BYTES // len(post(b"1"))
    assert hot.wire.written.count(b"connection: close") == 1
    assert hot.wire.closed
