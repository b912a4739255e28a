"""Frames between the compiled lane and pods: what it writes, what it keeps of what comes, what it hands on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.common.messages import EndpointState
from copydesk.common.rpc.codec import HEADER_BYTES, FrameParser, encode_frame
from copydesk.common.rpc.errors import FrameDecodeError, FrameError, FrameTooLargeError
from copydesk.common.rpc.frames import (
    AnyFrame,
    Cancel,
    Chunk,
    Drain,
    Fault,
    Load,
    Pong,
    Priority,
    Request,
    Response,
    Status,
)
from copydesk.gateway.lane.parser import LaneParser
from copydesk.gateway.openai.validation import parse_chat, parse_completion
from tests.unit.gateway.lane_rig import ANSWER, CHAT, MODEL, Rig, RigPort, RigSeat, answer, framed, head, request

PARAMETERS: dict[str, Any] = {
    "max_tokens": 7,
    "temperature": 0,
    "top_p": 0.5,
    "seed": -3,
    "stop": ["\n", "end"],
    "model": MODEL,
    "ignore_eos": True,
}


# ---- what it writes


@given(
    prompt=st.text(min_size=1, max_size=80).filter(lambda text: "\0" not in text),
    names=st.sets(st.sampled_from(sorted(PARAMETERS))),
    chat=st.booleans(),
    priority=st.sampled_from(Priority),
    allowed_ms=st.integers(1, 600_000),
)
def test_it_writes_the_request_that_python_would_send(
    native: ModuleType, prompt: str, names: set[str], chat: bool, priority: Priority, allowed_ms: int
) -> None:
    rig = Rig(native)
    what: dict[str, Any] = {"messages": [{"role": "user", "content": prompt}]} if chat else {"prompt": prompt}
    body = msgspec.json.encode(what | {name: PARAMETERS[name] for name in names})
    rig.learn(head(len(body)), form=CHAT if chat else 0, priority=priority, allowed=allowed_ms / 1000)
    if not rig.seat().take(head(len(body)) + body):  # left to Python
        return
    rig.lane.flush()
    (sent,) = rig.ports[0].frames
    job = parse_chat(body, MODEL) if chat else parse_completion(body, MODEL, most_prompts=9)
    assert isinstance(sent, Request)
    expected = Request(sent.id, sent.deadline_ms, priority, msgspec.Raw(job.payloads[0]))
    assert encode_frame(expected) == b"".join(rig.ports[0].written)
    assert allowed_ms - 1 <= sent.deadline_ms <= allowed_ms or sent.deadline_ms == 1


def test_its_ids_are_its_own_and_never_those_of_a_channel(native: ModuleType) -> None:
    rig = Rig(native, ports=2)
    rig.learn()
    for _ in range(30):
        clients = [rig.seat() for _ in range(5)]
        assert all(client.take(request()) for client in clients)
        for client in clients[::2]:
            client.seat.close()
    rig.lane.flush()
    ids = [sent.id for port in rig.ports for sent in port.requests]
    assert len(set(ids)) == len(ids) == 150
    assert min(ids) >= 1 << 62
    assert max(ids) < 1 << 63


def test_what_is_sent_in_one_turn_is_one_write(native: ModuleType) -> None:
    rig = Rig(native)
    rig.learn()
    (port,) = rig.ports
    clients = [rig.seat() for _ in range(10)]
    assert all(client.take(request()) for client in clients)
    assert (rig.woken, port.written) == (1, [])
    rig.lane.flush()
    assert (len(port.written), len(port.requests)) == (1, 10)
    rig.lane.flush()
    assert len(port.written) == 1
    clients[0].seat.close()
    assert (rig.woken, len(port.written)) == (2, 1)
    rig.lane.flush()
    assert port.frames[-1] == Cancel(port.requests[0].id)


def test_what_is_handed_back_has_left_before(native: ModuleType) -> None:
    rig = Rig(native)
    rig.learn()
    (port,) = rig.ports
    client = rig.seat()
    assert client.take(request("X-Request-Id: abc")) is False
    rig.learn(head(28, "X-Request-Id: any"))
    assert client.take(request("X-Request-Id: abc"))
    client.seat.recall()
    (sent,) = port.requests
    ((owner, pod, data, frame_id, sent_at, deadline, name),) = rig.resumed
    assert (owner, pod, data, frame_id, name) == ("a client", "p0", request("X-Request-Id: abc"), sent.id, "abc")
    assert deadline == pytest.approx(sent_at + 60.0)
    client.seat.recall()
    assert len(rig.resumed) == 1


def test_a_second_request_hands_the_first_back_and_is_not_taken(native: ModuleType) -> None:
    rig = Rig(native)
    rig.learn()
    client = rig.seat()
    assert client.take(request())
    assert not client.take(request())
    assert len(rig.resumed) == 1
    assert client.take(request())


# ---- what comes

ids = st.integers(0, 2**32) | st.just(1 << 62) | st.just((1 << 62) + (1 << 20) + 5)
loads = st.builds(Load, st.integers(0, 200), st.integers(0, 200), st.integers(0, 64), st.floats(0, 50))
payloads = st.just(msgspec.Raw(ANSWER)) | st.sampled_from(
    [None, 1, "a", [1, [2]], {"a": b"b"}, ["generated_text"]]
).map(lambda value: msgspec.Raw(msgspec.msgpack.encode(value)))
faults = st.none() | st.builds(Fault, st.just("code"), st.text(max_size=9), st.integers(0, 9))
pythons = st.one_of(
    st.builds(Pong, ids, loads, st.sampled_from(EndpointState)),
    st.builds(Chunk, ids, payloads),
    st.builds(Drain),
    st.builds(Response, ids, st.sampled_from(Status), loads, payloads, faults),
).map(encode_frame)
events = st.lists(
    st.one_of(
        st.tuples(st.just("python"), pythons),
        st.tuples(st.just("answer"), st.integers(0, 9)),
        st.tuples(st.just("fault"), st.integers(0, 9), st.sampled_from([s for s in Status if s is not Status.OK])),
        st.tuples(st.just("odd"), st.integers(0, 9), payloads.filter(lambda raw: bytes(raw) != ANSWER)),
        st.tuples(st.just("twice"), st.integers(0, 9)),
        st.tuples(st.just("garbage"), st.binary(max_size=12)),
        st.tuples(st.just("chunk"), st.integers(0, 9)),
    ),
    max_size=14,
)


def pieces(data: bytes, cuts: list[int]) -> Iterator[bytes]:
    places = sorted({cut % (len(data) + 1) for cut in cuts})
    for start, end in zip([0, *places], [*places, len(data)], strict=True):
        yield data[start:end]


class Traffic:
    """Ten requests underway, and what a script has their pod send."""

    def __init__(self, native: ModuleType) -> None:
        self.rig = Rig(native)
        self.rig.learn()
        (self.port,) = self.rig.ports
        self.clients = [self.rig.seat(f"c{number}") for number in range(10)]
        assert all(client.take(request()) for client in self.clients)
        self.rig.lane.flush()
        self.ids = [sent.id for sent in self.port.requests]
        self.ended: dict[int, str] = {}
        self.stream = b""
        self.expected: list[bytes] = []

    def say(self, kind: str, what: Any, *more: Any) -> None:
        id_ = self.ids[what] if isinstance(what, int) else 0
        if kind == "python":
            self.hand_on(what)
        elif kind == "garbage":
            self.hand_on(framed(what))
        elif kind == "chunk":
            self.hand_on(encode_frame(Chunk(id_, msgspec.Raw(b"\xc0"))))
        elif kind == "fault":
            self.end(what, "handed back")
            self.hand_on(encode_frame(Response(id_, more[0], Load(), fault=Fault("a", "b"))))
        elif kind == "odd":
            self.end(what, "handed back")
            self.hand_on(answer(id_, payload=bytes(more[0])))
        else:
            self.answered(what, id_)
            if kind == "twice":
                self.hand_on(answer(id_))

    def answered(self, which: int, id_: int) -> None:
        if which in self.ended:
            self.hand_on(answer(id_))
        else:
            self.end(which, "answered")
            self.stream += answer(id_)

    def end(self, which: int, how: str) -> None:
        self.ended.setdefault(which, how)

    def hand_on(self, frame: bytes) -> None:
        self.stream += frame
        self.expected.append(frame[HEADER_BYTES:])

    def check(self) -> None:
        for number, client in enumerate(self.clients):
            how = self.ended.get(number)
            assert len(client.written) == (how == "answered")
            assert client.seat.busy is (how is None)
        handed = {name for name, *_ in self.rig.resumed}
        assert handed == {f"c{number}" for number, how in self.ended.items() if how == "handed back"}
        assert len(handed) == len(self.rig.resumed)
        assert self.rig.lane.underway == 10 - len(self.ended)


@given(script=events, cuts=st.lists(st.integers(0, 10_000), max_size=12))
def test_however_it_is_cut_each_frame_goes_where_it_belongs_once(
    native: ModuleType, script: list[tuple[Any, ...]], cuts: list[int]
) -> None:
    traffic = Traffic(native)
    for step in script:
        traffic.say(*step)
    handed_on: list[bytes] = []
    for piece in pieces(traffic.stream, cuts):
        handed_on += traffic.port.port.feed(piece) or []
    assert handed_on == traffic.expected
    assert not traffic.port.port.in_frame
    traffic.check()


def outcome(frames: Iterable[AnyFrame]) -> tuple[list[AnyFrame], str]:
    found: list[AnyFrame] = []
    try:
        for frame in frames:
            found.append(frame)
    except FrameError as error:
        return found, f"{type(error).__name__}: {error}"
    return found, ""


@given(
    script=st.lists(pythons | st.binary(max_size=9).map(framed), max_size=6),
    end=st.sampled_from([b"", b"\x00\x00", b"\xff\xff\xff\xff", b"\x00\x40\x00\x01abc"]),
    cuts=st.lists(st.integers(0, 1_000), max_size=5),
)
def test_without_requests_of_its_own_it_is_the_parser_that_it_stands_in_for(
    native: ModuleType, script: list[bytes], end: bytes, cuts: list[int]
) -> None:
    """Frames before one that is garbage or too large come first, and then the same error."""
    rig = Rig(native)
    lane, plain = LaneParser(rig.ports[0].port), FrameParser()
    for piece in pieces(b"".join(script) + end, cuts):
        mine, other = outcome(lane.feed(piece)), outcome(plain.feed(piece))
        assert mine == other
        if mine[1]:
            return
        assert lane.in_frame is plain.in_frame


def test_a_frame_that_is_too_large_ends_the_stream_before_it_has_come(native: ModuleType) -> None:
    rig = Rig(native)
    port = RigPort(rig, "small", most=100)
    pong = Pong(1, Load(), EndpointState.READY)
    parser = LaneParser(port.port)
    frames = iter(parser.feed(encode_frame(pong) + b"\x00\x00\x00\x65"))
    assert next(frames) == pong
    with pytest.raises(FrameTooLargeError) as raised:
        next(frames)
    assert raised.value.size == 101


def test_garbage_is_an_error_of_its_frame(native: ModuleType) -> None:
    parser = LaneParser(Rig(native).ports[0].port)
    frames = iter(parser.feed(framed(b"\xc1")))
    with pytest.raises(FrameDecodeError):
        next(frames)


def test_an_answer_by_another_pod_is_none(native: ModuleType) -> None:
    rig = Rig(native, ports=2)
    rig.learn()
    client: RigSeat = rig.seat()
    assert client.take(request())
    rig.lane.flush()
    asked = next(port for port in rig.ports if port.requests)
    other = next(port for port in rig.ports if port is not asked)
    frame = answer(asked.requests[0].id)
    assert other.port.feed(frame) == [frame[HEADER_BYTES:]]
    assert client.seat.busy
    assert asked.port.feed(frame) is None
    assert len(client.written) == 1


def test_what_is_lost_with_its_connection_is_handed_back(native: ModuleType) -> None:
    rig = Rig(native)
    rig.learn()
    (port,) = rig.ports
    clients = [rig.seat(f"c{number}") for number in range(3)]
    assert all(client.take(request()) for client in clients)
    port.port.feed(answer(1)[:-3])
    port.port.close()
    assert {name for name, *_ in rig.resumed} == {"c0", "c1", "c2"}
    assert len(port.requests) == 3
    assert not port.port.open
    assert not rig.seat().take(request())
    assert rig.lane.underway == 0
