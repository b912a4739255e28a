"""Frames survive any chunking; bytes that are no frames end in the typed error and nothing else."""

from __future__ import annotations

import struct
from contextlib import suppress
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.common.messages import EndpointState
from copydesk.common.rpc.codec import FRAME_OVERHEAD_BYTES, FrameParser, decode_body, encode_frame
from copydesk.common.rpc.errors import FrameDecodeError, FrameError, FrameTooLargeError
from copydesk.common.rpc.frames import (
    AnyFrame,
    Cancel,
    Chunk,
    Drain,
    Fault,
    Hello,
    Load,
    Ping,
    Pong,
    Priority,
    Request,
    Response,
    Status,
)

ids = st.integers(0, 2**63 - 1)
counts = st.integers(0, 2**31)
texts = st.text(max_size=20)
payloads = st.one_of(st.none(), st.integers(-(2**31), 2**31), st.text(), st.binary(), st.lists(st.text())).map(
    lambda value: msgspec.Raw(msgspec.msgpack.encode(value))
)
loads = st.builds(Load, running=counts, queued=counts, capacity=counts, step_ms=st.floats(0, 1e6, allow_nan=False))
faults = st.none() | st.builds(Fault, code=texts, message=texts, retry_after_ms=counts)
frames: st.SearchStrategy[AnyFrame] = st.one_of(
    st.builds(
        Hello,
        version=counts,
        peer=texts,
        token=texts,
        model=texts,
        digest=texts,
        capacity=counts,
        state=st.sampled_from(EndpointState),
    ),
    st.builds(Request, id=ids, deadline_ms=counts, priority=st.sampled_from(Priority), payload=payloads),
    st.builds(Response, id=ids, status=st.sampled_from(Status), load=loads, payload=payloads, fault=faults),
    st.builds(Chunk, id=ids, payload=payloads),
    st.builds(Cancel, id=ids),
    st.builds(Drain),
    st.builds(Ping, id=ids),
    st.builds(Pong, id=ids, load=loads, state=st.sampled_from(EndpointState)),
)


def comparable(frame: AnyFrame) -> tuple[type[AnyFrame], list[object]]:
    values = [getattr(frame, name) for name in frame.__struct_fields__]
    return type(frame), [bytes(value) if isinstance(value, msgspec.Raw) else value for value in values]


def pieces(stream: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    return [stream[start:end] for start, end in pairwise(edges)]


@given(st.lists(frames, max_size=8), st.lists(st.integers(0, 10_000), max_size=20))
def test_any_frames_in_any_pieces_come_out_as_they_went_in(sent: list[AnyFrame], cuts: list[int]) -> None:
    parser = FrameParser()
    stream = b"".join(map(encode_frame, sent))
    received = [frame for piece in pieces(stream, cuts) for frame in parser.feed(piece)]
    assert list(map(comparable, received)) == list(map(comparable, sent))


@given(st.lists(frames, min_size=1, max_size=3))
def test_frames_byte_by_byte_come_out_as_they_went_in(sent: list[AnyFrame]) -> None:
    parser = FrameParser()
    stream = b"".join(map(encode_frame, sent))
    received = [frame for byte in stream for frame in parser.feed(bytes([byte]))]
    assert list(map(comparable, received)) == list(map(comparable, sent))


@given(st.binary(max_size=200))
def test_a_body_of_garbage_is_a_frame_or_the_typed_error(body: bytes) -> None:
    with suppress(FrameDecodeError):
        assert isinstance(decode_body(body), AnyFrame)


@given(st.lists(st.binary(max_size=40), max_size=10))
def test_a_stream_of_garbage_raises_nothing_but_the_typed_error(chunks: list[bytes]) -> None:
    parser = FrameParser(max_frame_bytes=64)
    with suppress(FrameError):
        for chunk in chunks:
            assert all(isinstance(frame, AnyFrame) for frame in parser.feed(chunk))


@given(frames, st.data())
def test_a_flipped_byte_is_another_frame_or_the_typed_error(frame: AnyFrame, data: st.DataObject) -> None:
    damaged = bytearray(encode_frame(frame)[4:])
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    with suppress(FrameDecodeError):
        assert isinstance(decode_body(bytes(damaged)), AnyFrame)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\xc1", id="a byte msgpack never uses"),
        pytest.param(msgspec.msgpack.encode([99, 1]), id="unknown tag"),
        pytest.param(msgspec.msgpack.encode({"id": 1}), id="no array"),
        pytest.param(msgspec.msgpack.encode([1, "x", 2, 0, None]), id="wrong type"),
        pytest.param(b"\x93\x00\x01\xa2\xff\xfe", id="a string that is no UTF-8"),
        pytest.param(b"\x92\x04\xcf", id="cut short"),
        pytest.param(b"\x95\x01\x01\x01\x00" + b"\x91" * 200_000 + b"\xc0", id="nested too deep"),
        pytest.param(b"\xdd\xff\xff\xff\xff\x05", id="an array of four billion"),
        pytest.param(encode_frame(Ping(1))[4:] + b"\x00", id="trailing bytes"),
    ],
)
def test_what_does_not_decode_says_so(body: bytes) -> None:
    with pytest.raises(FrameDecodeError) as caught:
        decode_body(body)
    assert caught.value.size == len(body)
    assert caught.value.reason


def test_a_frame_over_the_limit_is_refused_by_its_header_alone() -> None:
    parser = FrameParser(max_frame_bytes=100)
    with pytest.raises(FrameTooLargeError) as caught:
        list(parser.feed(struct.pack(">I", 101)))
    assert (caught.value.size, caught.value.limit) == (101, 100)


def test_a_frame_at_the_limit_passes() -> None:
    whole = encode_frame(Ping(7))
    assert list(FrameParser(max_frame_bytes=len(whole) - 4).feed(whole)) == [Ping(7)]


def test_frames_before_a_broken_one_are_still_delivered() -> None:
    frames = FrameParser().feed(encode_frame(Ping(1)) + encode_frame(Ping(2)) + b"\x00\x00\x00\x01\xc1")
    assert [next(frames), next(frames)] == [Ping(1), Ping(2)]
    with pytest.raises(FrameDecodeError):
        next(frames)


@given(st.lists(frames, max_size=4), st.integers(0, 10_000))
def test_another_parser_goes_on_with_the_rest(sent: list[AnyFrame], cut: int) -> None:
    first, second = FrameParser(), FrameParser()
    begin, end = pieces(b"".join(map(encode_frame, sent)), [cut])
    received = list(first.feed(begin))
    half = first.in_frame
    rest = first.rest()
    assert (bool(rest), first.in_frame) == (half, False)
    received += [*second.feed(rest), *second.feed(end)]
    assert list(map(comparable, received)) == list(map(comparable, sent))


def test_fields_that_a_newer_peer_adds_are_ignored() -> None:
    assert decode_body(msgspec.msgpack.encode([4, 17, "something new"])) == Cancel(17)


def test_the_overhead_bound_holds_for_the_largest_frames() -> None:
    payload = msgspec.Raw(msgspec.msgpack.encode(b"x" * 70_000))
    big = 2**63 - 1
    request = Request(id=big, deadline_ms=big, priority=Priority.BATCH, payload=payload)
    response = Response(big, Status.CANCELLED, Load(big, big, big, 1e300), payload)
    for frame in (request, response):
        assert len(encode_frame(frame)) <= len(payload) + FRAME_OVERHEAD_BYTES
