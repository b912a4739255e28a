"""A request on a channel ends exactly once, whatever happens in whatever order."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.common.rpc import Channel, Hello, Load, Response, Status, UnixAddress
from copydesk.common.rpc.codec import DEFAULT_MAX_FRAME_BYTES, FrameParser, encode_frame
from copydesk.common.rpc.connection import MAX_WRITE_BUFFER_BYTES
from copydesk.common.rpc.frames import PROTOCOL_VERSION, AnyFrame, Cancel, Chunk, Drain, Request

PAYLOAD = msgspec.msgpack.encode("she go home")
RAW = msgspec.Raw(PAYLOAD)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose waiting takes no time: its clock jumps to the next timer."""

    def __init__(self) -> None:
        loop = self
        self.now = 0.0

        class Selector(selectors.SelectSelector):
            def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
                assert timeout is not None, "nothing will ever happen"
                loop.now += max(0.0, timeout)
                return super().select(0)

        super().__init__(Selector())

    def time(self) -> float:
        return self.now


class FakeTransport(asyncio.Transport):
    """Keeps what is written; a close or abort reports the loss on the next turn of the loop."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.protocol = protocol
        self.parser = FrameParser()
        self.writes = 0
        self.frames: list[AnyFrame] = []
        self.lost = False
        self.waiting = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes += 1
        self.frames.extend(self.parser.feed(bytes(data)))

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def close(self) -> None:
        self.lose(None)

    def abort(self) -> None:
        self.lose(None)

    def lose(self, error: Exception | None) -> None:
        if not self.lost:
            self.lost = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, error)


@dataclass
class Rig:
    """A channel that has been greeted, over a transport that goes nowhere."""

    channel: Channel
    transport: FakeTransport
    closed: list[Channel] = field(default_factory=list)
    drained: list[Channel] = field(default_factory=list)

    def receive(self, *frames: AnyFrame) -> None:
        if not self.transport.lost:
            self.transport.protocol.data_received(b"".join(map(encode_frame, frames)))


async def make_rig() -> Rig:
    closed: list[Channel] = []
    drained: list[Channel] = []
    loop = asyncio.get_running_loop()
    made: list[FakeTransport] = []

    async def connect(factory: Callable[[], asyncio.Protocol], *_: object, **__: object) -> None:
        protocol = factory()
        made.append(FakeTransport(protocol))
        protocol.connection_made(made[0])
        hello = encode_frame(Hello(PROTOCOL_VERSION, "server", capacity=4))
        loop.call_soon(protocol.data_received, hello)

    loop.create_unix_connection = connect  # type: ignore[assignment, method-assign]
    channel = await Channel.open(
        UnixAddress("/nowhere"), name="test", on_close=closed.append, on_drain=drained.append
    )
    return Rig(channel, made[0], closed, drained)


@contextmanager
def virtual_loop() -> Iterator[VirtualLoop]:
    with closing(VirtualLoop()) as loop:
        yield loop


def turns(test: Callable[[Rig], object]) -> None:
    """Run `test`, a coroutine function over a rig, in virtual time."""

    async def run() -> None:
        rig = await make_rig()
        await test(rig)  # type: ignore[misc]
        await rig.channel.close()

    with virtual_loop() as loop:
        loop.run_until_complete(run())


ADOPTED = 100
"""Requests that somebody else has written have ids above this one."""

request_ids = st.integers(1, 12) | st.integers(ADOPTED + 1, ADOPTED + 4)
operations = st.one_of(
    st.tuples(st.just("send"), st.integers(-1, 60)),
    st.tuples(st.just("adopt"), st.integers(-30, 60)),
    st.tuples(st.just("reply"), request_ids),
    st.tuples(st.just("chunk"), request_ids),
    st.tuples(st.just("cancel"), request_ids),
    st.tuples(st.just("wait"), st.integers(0, 40)),
    st.tuples(st.just("drain"), st.just(0)),
    st.tuples(st.just("lose"), st.just(0)),
    st.tuples(st.just("close"), st.just(0)),
)


class Story:
    """Plays operations on a channel, and keeps account of what was sent, cancelled and ended."""

    def __init__(self, rig: Rig, resends: int) -> None:
        self.rig = rig
        self.resends = resends
        self.sent: set[int] = set()
        self.cancelled: set[int] = set()
        self.adopted = ADOPTED
        self.ends: list[int] = []
        self.sending = False

    async def play(self, name: str, number: int) -> None:
        await getattr(self, name)(number)

    async def send(self, deadline_ms: int) -> None:
        self.send_now(deadline_ms)

    def send_now(self, deadline_ms: int) -> None:
        self.sending = True
        self.sent.add(self.rig.channel.send(PAYLOAD, deadline_ms=deadline_ms, on_reply=self.end))
        self.sending = False

    async def adopt(self, deadline_ms: int) -> None:
        self.sending = True
        self.adopted += 1
        self.sent.add(self.adopted)
        deadline = asyncio.get_running_loop().time() + deadline_ms / 1000
        self.rig.channel.adopt(self.adopted, deadline, self.end)
        self.sending = False

    def end(self, response: Response) -> None:
        assert not self.sending, "called back from within send or adopt"
        self.ends.append(response.id)
        if self.resends > 0:
            self.resends -= 1
            self.send_now(20)

    async def reply(self, number: int) -> None:
        self.rig.receive(Response(number, Status.OK, Load(), RAW))

    async def chunk(self, number: int) -> None:
        self.rig.receive(Chunk(number, RAW))

    async def cancel(self, number: int) -> None:
        if number in self.sent and number not in self.ends:
            self.cancelled.add(number)
        self.rig.channel.cancel(number)

    async def wait(self, milliseconds: int) -> None:
        await asyncio.sleep(milliseconds / 1000)

    async def drain(self, _: int) -> None:
        self.rig.receive(Drain())

    async def lose(self, _: int) -> None:
        self.rig.transport.lose(ConnectionResetError("gone"))

    async def close(self, _: int) -> None:
        await self.rig.channel.close()


@given(st.lists(operations, max_size=40), st.sampled_from([0, 20]))
def test_each_request_ends_exactly_once_unless_cancelled_first(steps: list[tuple[str, int]], resends: int) -> None:
    async def scenario(rig: Rig) -> None:
        story = Story(rig, resends)
        for name, number in steps:
            await story.play(name, number)
        await asyncio.sleep(60)
        assert sorted(story.ends) == sorted(story.sent - story.cancelled)
        assert rig.channel.in_flight == 0

    turns(scenario)


def test_a_deadline_that_passes_here_ends_the_request_and_cancels_it_there() -> None:
    async def scenario(rig: Rig) -> None:
        ended: list[tuple[float, Response]] = []
        loop = asyncio.get_running_loop()
        start = loop.time()
        request_id = rig.channel.send(
            PAYLOAD, deadline_ms=250, on_reply=lambda response: ended.append((loop.time(), response))
        )
        await asyncio.sleep(1)
        ((when, response),) = ended
        assert 0.250 <= when - start <= 0.256
        assert response.status is Status.DEADLINE_EXCEEDED
        assert response.fault is not None
        assert response.fault.code == "deadline_exceeded"
        assert rig.transport.frames[-1] == Cancel(request_id)

    turns(scenario)


@given(st.lists(st.integers(1, 500), min_size=1, max_size=30))
def test_every_deadline_is_noticed_within_a_sweep_of_passing(deadlines: list[int]) -> None:
    async def scenario(rig: Rig) -> None:
        loop = asyncio.get_running_loop()
        start = loop.time()
        late: list[float] = []
        for deadline_ms in deadlines:
            rig.channel.send(
                PAYLOAD,
                deadline_ms=deadline_ms,
                on_reply=lambda _, due=start + deadline_ms / 1000: late.append(loop.time() - due),  # type: ignore[misc]
            )
        await asyncio.sleep(1)
        assert len(late) == len(deadlines)
        assert all(-1e-6 <= delay <= 0.0051 for delay in late)

    turns(scenario)


def test_a_deadline_that_has_passed_already_is_never_sent() -> None:
    async def scenario(rig: Rig) -> None:
        response = await rig.channel.call(PAYLOAD, deadline_ms=0)
        assert response.status is Status.DEADLINE_EXCEEDED
        assert not any(isinstance(frame, Request) for frame in rig.transport.frames)

    turns(scenario)


def test_requests_of_one_turn_leave_in_one_write() -> None:
    async def scenario(rig: Rig) -> None:
        before = rig.transport.writes
        for _ in range(100):
            rig.channel.send(PAYLOAD, deadline_ms=1000, on_reply=lambda _: None)
        await asyncio.sleep(0)
        assert rig.transport.writes == before + 1
        assert sum(isinstance(frame, Request) for frame in rig.transport.frames) == 100

    turns(scenario)


def test_a_lost_connection_ends_what_is_in_flight_after_telling_of_itself() -> None:
    async def scenario(rig: Rig) -> None:
        order: list[str] = []
        rig.channel._on_close = lambda _: order.append("closed")
        rig.channel.send(PAYLOAD, deadline_ms=1000, on_reply=lambda response: order.append(response.status.name))
        rig.transport.lose(ConnectionResetError("gone"))
        await asyncio.sleep(0)
        assert order == ["closed", "UNAVAILABLE"]
        assert rig.channel.closed

    turns(scenario)


def test_a_closed_channel_answers_soon_and_never_raises() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.channel.close()
        assert rig.closed == [rig.channel]
        response = await rig.channel.call(PAYLOAD, deadline_ms=1000)
        assert response.status is Status.UNAVAILABLE
        assert response.fault is not None
        assert response.fault.code == "connection_lost"

    turns(scenario)


def test_a_request_cancelled_on_a_closed_channel_is_not_called_back() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.channel.close()
        called: list[Response] = []
        rig.channel.cancel(rig.channel.send(PAYLOAD, deadline_ms=1000, on_reply=called.append))
        await asyncio.sleep(1)
        assert called == []

    turns(scenario)


def test_a_callback_that_raises_does_not_hurt_the_others() -> None:
    async def scenario(rig: Rig) -> None:
        ended: list[Response] = []

        def bad(_: Response) -> None:
            raise RuntimeError("a bug in the caller")

        first = rig.channel.send(PAYLOAD, deadline_ms=1000, on_reply=bad)
        second = rig.channel.send(PAYLOAD, deadline_ms=1000, on_reply=ended.append)
        rig.receive(Response(first, Status.OK, Load(), RAW), Response(second, Status.OK, Load(), RAW))
        assert [response.id for response in ended] == [second]
        assert not rig.channel.closed

    turns(scenario)


def test_every_answer_brings_the_load() -> None:
    async def scenario(rig: Rig) -> None:
        assert rig.channel.load == Load(capacity=4)
        rig.receive(Response(99, Status.OK, Load(3, 2, 4, 7.5), RAW))
        assert rig.channel.load == Load(3, 2, 4, 7.5)

    turns(scenario)


def test_drain_is_told_once() -> None:
    async def scenario(rig: Rig) -> None:
        rig.receive(Drain(), Drain())
        assert rig.channel.draining
        assert rig.drained == [rig.channel]

    turns(scenario)


def test_a_payload_that_fits_no_frame_is_the_requests_own_fault() -> None:
    async def scenario(rig: Rig) -> None:
        response = await rig.channel.call(b"x" * DEFAULT_MAX_FRAME_BYTES, deadline_ms=1000)
        assert response.status is Status.INVALID
        assert not rig.channel.closed

    turns(scenario)


@pytest.mark.parametrize("frame", [Request(1, 1, 0, RAW), Cancel(1), Hello(PROTOCOL_VERSION, "again")])  # type: ignore[arg-type]
def test_a_frame_that_no_server_sends_closes_the_channel(frame: AnyFrame) -> None:
    async def scenario(rig: Rig) -> None:
        rig.receive(frame)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert rig.channel.closed
        assert rig.closed == [rig.channel]

    turns(scenario)


class PickyParser:
    """Keeps the answers to some requests to itself."""

    def __init__(self, kept: set[int]) -> None:
        self._parser = FrameParser()
        self._kept = kept
        self.max_frame_bytes = DEFAULT_MAX_FRAME_BYTES
        self.answers: list[Response] = []

    @property
    def in_frame(self) -> bool:
        return self._parser.in_frame

    def feed(self, data: bytes) -> Iterable[AnyFrame]:
        for frame in self._parser.feed(data):
            if isinstance(frame, Response) and frame.id in self._kept:
                self.answers.append(frame)
            else:
                yield frame


@pytest.mark.parametrize("cut", [0, 2, 9])
def test_another_parser_takes_over_in_the_middle_of_a_frame_and_keeps_what_is_its_own(cut: int) -> None:
    async def scenario(rig: Rig) -> None:
        parser, ended = PickyParser({7}), []  # type: ignore[var-annotated]
        sent = rig.channel.send(PAYLOAD, deadline_ms=1000, on_reply=ended.append)
        stream = b"".join(encode_frame(Response(number, Status.OK, Load(), RAW)) for number in (7, sent))
        rig.transport.protocol.data_received(stream[:cut])
        rig.channel.tap(parser)
        rig.transport.protocol.data_received(stream[cut:])
        assert ([answer.id for answer in parser.answers], [answer.id for answer in ended]) == ([7], [sent])
        assert not parser.in_frame

    turns(scenario)


def test_a_parser_that_takes_over_while_frames_are_handed_on_gets_the_one_that_has_begun() -> None:
    async def scenario(rig: Rig) -> None:
        parser = PickyParser({7})
        sent = rig.channel.send(PAYLOAD, deadline_ms=1000, on_reply=lambda _: rig.channel.tap(parser))
        stream = b"".join(encode_frame(Response(number, Status.OK, Load(), RAW)) for number in (sent, 7))
        rig.transport.protocol.data_received(stream[:-3])
        assert parser.in_frame
        rig.transport.protocol.data_received(stream[-3:])
        assert [answer.id for answer in parser.answers] == [7]

    turns(scenario)


def test_what_another_parser_cannot_read_closes_the_channel() -> None:
    async def scenario(rig: Rig) -> None:
        rig.channel.tap(PickyParser(set()))
        rig.transport.protocol.data_received(b"\xff\xff\xff\xff")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert rig.channel.closed

    turns(scenario)


def test_what_another_party_writes_leaves_at_once_and_ahead_of_what_is_queued() -> None:
    async def scenario(rig: Rig) -> None:
        request_id = rig.channel.send(PAYLOAD, deadline_ms=1000, on_reply=lambda _: None)
        before = rig.transport.writes
        rig.channel.write(encode_frame(Cancel(7)))
        assert (rig.transport.writes, rig.transport.frames[-1]) == (before + 1, Cancel(7))
        await asyncio.sleep(0)
        last = rig.transport.frames[-1]
        assert isinstance(last, Request)
        assert (rig.transport.writes, last.id) == (before + 2, request_id)

    turns(scenario)


def test_a_server_that_does_not_read_what_another_party_writes_loses_the_connection() -> None:
    async def scenario(rig: Rig) -> None:
        write = rig.channel.write
        rig.transport.waiting = MAX_WRITE_BUFFER_BYTES
        write(encode_frame(Cancel(7)))
        lost = [rig.transport.lost]
        rig.transport.waiting += 1
        write(encode_frame(Cancel(8)))
        lost.append(rig.transport.lost)
        assert lost == [False, True]
        writes = rig.transport.writes
        write(encode_frame(Cancel(9)))
        assert rig.transport.writes == writes
        await asyncio.sleep(0)
        assert rig.channel.closed

    turns(scenario)


def test_a_request_that_somebody_else_has_written_ends_like_any_other() -> None:
    async def scenario(rig: Rig) -> None:
        ended: list[Response] = []
        parts: list[msgspec.Raw] = []
        now = asyncio.get_running_loop().time()
        rig.channel.adopt(101, now + 1, ended.append, parts.append)
        rig.channel.adopt(102, now - 1, ended.append)
        rig.channel.adopt(103, now + 1, ended.append)
        assert (ended, rig.channel.in_flight) == ([], 3)
        rig.receive(Chunk(101, RAW), Response(101, Status.OK, Load(), RAW))
        rig.channel.cancel(103)
        await asyncio.sleep(0.01)
        assert [(response.id, response.status) for response in ended] == [
            (101, Status.OK),
            (102, Status.DEADLINE_EXCEEDED),
        ]
        assert (len(parts), rig.channel.in_flight) == (1, 0)
        cancelled = {frame.id for frame in rig.transport.frames if isinstance(frame, Cancel)}
        assert cancelled == {102, 103}

    turns(scenario)


def test_a_request_that_was_on_a_lost_connection_ends_soon() -> None:
    async def scenario(rig: Rig) -> None:
        ended: list[Response] = []
        await rig.channel.close()
        rig.channel.adopt(101, asyncio.get_running_loop().time() + 1, ended.append)
        assert ended == []
        await asyncio.sleep(0)
        assert [response.status for response in ended] == [Status.UNAVAILABLE]

    turns(scenario)
