"""Which heads the compiled lane takes: none that a real parser has not taken before.

Heads are generated and damaged. Whatever the lane takes of that, httptools must take too, and understand as the
lane does; and it must say what a head said that was learned.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from types import ModuleType

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.gateway.http.request_ids import request_id
from tests.unit.gateway.lane_rig import BODY, Rig, head, request
from tests.unit.gateway.wire import Hot, post, turn

DIFFERS = {b"content-length", b"x-request-id", b"traceparent"}


@dataclass
class Parsed:
    """What httptools makes of bytes that hold one request."""

    complete: int = 0
    url: bytes = b""
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.complete += 1

    def others(self) -> list[tuple[bytes, bytes]]:
        return [(name, value) for name, value in self.headers if name not in DIFFERS]

    def values(self, name: bytes) -> list[bytes]:
        return [value for known, value in self.headers if known == name]


def parse(data: bytes) -> tuple[Parsed, str] | None:
    parsed = Parsed()
    parser = httptools.HttpRequestParser(parsed)
    try:
        parser.feed_data(data)
    except httptools.HttpParserError:
        return None
    if parsed.complete != 1:
        return None
    return parsed, f"{parser.get_method().decode()} {parser.get_http_version()} {parser.should_keep_alive()}"


def fields_once(parsed: Parsed) -> bool:
    return all(len(parsed.values(name)) <= 1 for name in DIFFERS)


ids = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=20)
values = st.sampled_from(["a", "Bearer secret", "a, b", "", "x" * 200, "a\tb"]) | ids
names = st.sampled_from(
    ["Authorization", "Accept", "X-Request-Deadline-Ms", "X-A", "Content-Lengt", "Content-Length-X", "X-Request-I"]
)
lines = st.one_of(
    st.tuples(names, values),
    st.tuples(st.sampled_from(["X-Request-Id", "x-request-id", "TRACEPARENT", "traceparent"]), ids),
)


@st.composite
def heads(draw: st.DrawFn) -> bytes:
    """A head that is right, with the length of `BODY`."""
    found = draw(st.lists(lines, max_size=5, unique_by=lambda line: line[0].lower()))
    length = draw(st.sampled_from(["Content-Length", "content-length", "CONTENT-LENGTH"]))
    place = draw(st.integers(0, len(found)))
    space = draw(st.sampled_from(["", " "]))
    text = [f"{name}:{space if name[0] in 'XxTt' else ' '}{value}" for name, value in found]
    text.insert(place, f"{length}:{space}{len(BODY)}")
    return "\r\n".join(["POST /v1/completions HTTP/1.1", "Host: x", *text, "", ""]).encode()


odd_lines = st.sampled_from(
    [
        b"Content-Length: %d" % len(BODY),
        b"content-length: 5",
        b"Content-Length : %d" % len(BODY),
        b"Content\rLength: %d" % len(BODY),
        b"Transfer-Encoding: chunked",
        b" folded: yes",
        b"\tfolded",
        b"X-Request-Id: a\rb: c",
        b"X-Request-Id: one",
        b"X-Request-Id: two words",
        b"X-Request-Id: " + b"i" * 129,
        b"X-Request-Id:",
        b"traceparent: a",
        b"Connection: close",
        b"Expect: 100-continue",
        b"no colon",
        b": no name",
        b"",
    ]
)
lengths = st.sampled_from(
    [b"%d" % (len(BODY) + more) for more in (-1, 0, 1, 2)]
    + [b"0%d" % len(BODY), b"%09d" % len(BODY), b"%08d" % len(BODY), b"+%d" % len(BODY), b"-1", b"0x1c", b"", b" "]
    + [b" %d" % len(BODY), b"%d " % len(BODY), b"\t%d" % len(BODY), b"%d,%d" % (len(BODY), len(BODY)), b"1_0"]
    + [b"99999999999999999999", b"18446744073709551644", b"2" * 60, b"%da" % len(BODY), "٢٨".encode()]
)
interesting = st.sampled_from([b"\r", b"\n", b"\r\n", b":", b" ", b"\0", b"\t", b"\x80", b"-", b"M", b"\x0d\x0a "])
mutations = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), st.integers(0, 400), interesting | st.binary(min_size=1, max_size=2)),
        st.tuples(st.just("replace"), st.integers(0, 400), interesting | st.binary(min_size=1, max_size=1)),
        st.tuples(st.just("delete"), st.integers(0, 400), st.just(b"")),
        st.tuples(st.just("line"), st.integers(1, 8), odd_lines),
        st.tuples(st.just("length"), st.just(0), lengths),
        st.tuples(st.just("id"), st.just(0), ids.map(str.encode)),
        st.tuples(st.just("swap"), st.integers(1, 8), st.just(b"")),
        st.tuples(st.just("bare"), st.integers(0, 8), st.sampled_from([b"\n", b"\r", b"\r\r\n", b"\n\r\n"])),
    ),
    min_size=1,
    max_size=2,
)


def mutate(data: bytes, how: str, at: int, what: bytes) -> bytes:
    place = at % (len(data) + 1)
    if how == "insert":
        return data[:place] + what + data[place:]
    if how in ("replace", "delete"):
        return data[:place] + what + data[place + 1 :]
    parts = data.split(b"\r\n")
    index = min(at, len(parts) - 2)
    if how == "line":
        parts.insert(index, what)
    elif how == "without":
        del parts[index]
    elif how == "swap" and index + 1 < len(parts) - 2:
        parts[index], parts[index + 1] = parts[index + 1], parts[index]
    elif how == "bare":
        return b"\r\n".join(parts[: index + 1]) + what + b"\r\n".join(parts[index + 1 :])
    wanted = {"length": b"content-length", "id": b"x-request-id"}.get(how)
    if wanted is not None:
        parts = [
            line.partition(b":")[0] + b": " + what if line.lower().startswith(wanted + b":") else line
            for line in parts
        ]
    return b"\r\n".join(parts)


@given(learned=heads(), changes=mutations, more=st.sampled_from([b"", b" ", b"  "]))
def test_what_it_takes_httptools_takes_and_understands_alike(
    native: ModuleType, learned: bytes, changes: list[tuple[str, int, bytes]], more: bytes
) -> None:
    rig = Rig(native)
    known = parse(learned + BODY)
    assert known is not None
    assert rig.learn(learned)
    data = learned
    for change in changes:
        data = mutate(data, *change)
    data += BODY + more
    client = rig.seat()
    if not client.take(data):
        return
    found = parse(data)
    assert found is not None
    (before, way), (after, same_way) = known, found
    assert (after.url, after.others(), same_way) == (before.url, before.others(), way)
    assert after.headers.count((b"host", b"x")) == 1
    assert fields_once(after)
    assert int(after.values(b"content-length")[0]) == len(after.body)
    assert json.loads(after.body) == json.loads(BODY)
    client.seat.recall()
    said = after.values(b"x-request-id")
    name = rig.resumed[0][6]
    assert name == (request_id(said[0]) if said else name)
    assert said or name.startswith("req-0123456789ab")


@given(learned=heads(), length=st.integers(0, 3), id_=ids)
def test_what_differs_as_it_may_is_taken(native: ModuleType, learned: bytes, length: int, id_: str) -> None:
    rig = Rig(native)
    assert rig.learn(learned)
    body = BODY + b" " * length
    data = mutate(mutate(learned, "length", 0, b"%d" % len(body)), "id", 0, id_.encode())
    assert rig.seat().take(data + body)


@pytest.mark.parametrize(
    "line",
    [
        "Transfer-Encoding: chunked",
        "Content-Length: 28",
        "X-Request-Id: a b",
        " folded",
        "X-Request-Id: a\r\nX-Request-Id: b",
        "traceparent: a\r\ntraceparent: b",
    ],
)
def test_a_head_with_such_a_line_is_another_one(native: ModuleType, line: str) -> None:
    rig = Rig(native)
    assert rig.learn()
    assert not rig.seat().take(request(line))
    assert rig.lane.heads == 1


@pytest.mark.parametrize(
    "data",
    [
        mutate(head(len(BODY)), "without", 3, b""),
        head(len(BODY), "Content-Length: 28"),
        head(len(BODY), "X-Request-Id: a b"),
        head(len(BODY), "X-Request-Id: " + "a" * 129),
        head(len(BODY), " folded"),
        head(len(BODY)).replace(b"\r\n", b"\n"),
        head(len(BODY), "X-A: " + "a" * 4_000),
        b"POS",
        b"",
    ],
)
def test_such_a_head_is_not_even_learned(native: ModuleType, data: bytes) -> None:
    rig = Rig(native)
    assert not rig.learn(data)
    assert rig.lane.heads == 0


def test_what_comes_in_two_pieces_or_with_more_behind_it_is_not_taken(native: ModuleType) -> None:
    rig = Rig(native)
    rig.learn()
    whole = request()
    for data in (whole[:-1], whole + whole, whole + b"P", whole[:20], b"\r\n" + whole, b""):
        assert not rig.seat().take(data)
    assert not rig.seat().take(bytearray(whole))  # type: ignore[arg-type]
    assert rig.seat().take(whole)


def test_a_body_that_is_larger_than_bodies_may_be_is_not_taken(native: ModuleType) -> None:
    rig = Rig(native, most_body=100)
    rig.learn()
    for size, taken in ((100, True), (101, False), (5_000, False)):
        assert rig.seat().take(request(body=BODY.ljust(size))) is taken


def test_what_is_forgotten_is_not_taken(native: ModuleType) -> None:
    rig = Rig(native)
    rig.learn()
    assert rig.seat().take(request())
    rig.lane.forget()
    assert not rig.seat().take(request())
    assert rig.lane.underway == 1
    rig.learn()
    assert rig.seat().take(request())


# ---- what a connection has learned, by the lane's leave or not


async def test_a_head_that_was_refused_is_not_taken_for_the_one_before_it() -> None:
    hot = Hot()
    hot.behave = lambda exchange: exchange.respond(b"{}")
    hot.send(post(b'{"a":1}'))
    await turn()
    smuggled = post(b'{"a":2}', "Transfer-Encoding: chunked")
    hot.send(smuggled)
    await turn()
    assert hot.wire.statuses == [200, 400]
    assert len(hot.path.known) == 1
    assert hot.path.known.get(smuggled.partition(b"\r\n\r\n")[0] + b"\r\n\r\n") is None


async def test_the_beginning_of_a_head_is_not_taken_for_one() -> None:
    """Whose body happens to be as long as the one before."""
    hot = Hot()
    hot.behave = lambda exchange: exchange.respond(exchange.body)
    hot.send(post(b'{"a": "12345678"}'))
    await turn()
    whole = post(b'{"a": "90"}')
    cut = len(b'{"a": "12345678"}') + 3
    hot.send(whole[:cut])
    await turn()
    assert len(hot.path.known) == 1
    hot.send(whole[cut:])
    await turn()
    assert hot.wire.statuses == [200, 200]
    assert hot.wire.written.endswith(b'{"a": "90"}')
