"""What a generator process is told and what it answers: msgpack behind a length, over its standard streams."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from copydesk.loadtest.client import Target
from copydesk.loadtest.pulse import Stall
from copydesk.loadtest.sample import RequestFailedError, Sample
from copydesk.loadtest.tally import Tally, Watch

_LENGTH = struct.Struct("!I")
_encode = msgspec.msgpack.Encoder().encode
_T = TypeVar("_T")


class Assignment(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A share of a plan: `offsets` from `start`, a time of CLOCK_MONOTONIC that all processes have in common.

    The i-th request is number `first + i * step` of the target's. `grace` is in seconds. With a `watch`, the
    process tells what it counts as it goes on.
    """

    start: float
    offsets: tuple[float, ...]
    first: int
    step: int
    grace: float
    watch: Watch | None = None


class Stop(msgspec.Struct, frozen=True, tag=True):
    """End what is under way, and tell what became of it so far."""


class FailureAt(msgspec.Struct, frozen=True, array_like=True):
    """That the request at a position of the assignment failed, and how."""

    position: int
    kind: str
    message: str


class Outcomes(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What became of an assignment: moments in the assignment's clock, one entry a request.

    `unasked` counts what came meanwhile that was no answer to a request, `stalls` are those that were felt.
    """

    planned: tuple[float, ...]
    sent: tuple[float, ...]
    finished: tuple[float, ...]
    failures: tuple[FailureAt, ...]
    unasked: int = 0
    stalls: tuple[Stall, ...] = ()

    @classmethod
    def of(cls, samples: Sequence[Sample], unasked: int = 0, stalls: Sequence[Stall] = ()) -> Outcomes:
        """Pack samples for the way."""
        return cls(
            planned=tuple(sample.planned for sample in samples),
            sent=tuple(sample.sent for sample in samples),
            finished=tuple(sample.finished for sample in samples),
            failures=tuple(
                FailureAt(position, sample.failure.kind, sample.failure.message[:200])
                for position, sample in enumerate(samples)
                if sample.failure is not None
            ),
            unasked=unasked,
            stalls=tuple(stalls),
        )

    def samples(self, start: float) -> list[Sample]:
        """Unpack the samples, with moments in seconds from `start`."""
        failed = {one.position: RequestFailedError(one.kind, one.message) for one in self.failures}
        rows = zip(self.planned, self.sent, self.finished, strict=True)
        return [
            Sample(planned - start, sent - start, finished - start, failed.get(position))
            for position, (planned, sent, finished) in enumerate(rows)
        ]


Order = Assignment | Stop
"""What a process is told."""
Told = Outcomes | Tally
"""What a process tells."""


def frame(message: Target | Order | Told) -> bytes:
    """Return a message as it goes over a stream."""
    body = _encode(message)
    return _LENGTH.pack(len(body)) + body


read_target = msgspec.msgpack.Decoder(Target).decode
read_order = msgspec.msgpack.Decoder[Order](Order).decode
read_told = msgspec.msgpack.Decoder[Told](Told).decode


async def receive(reader: asyncio.StreamReader, read: Callable[[bytes], _T]) -> _T | None:
    """Return the next message, None at the end of the stream."""
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        return read(await reader.readexactly(length))
    except asyncio.IncompleteReadError:
        return None
