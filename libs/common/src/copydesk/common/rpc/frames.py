"""The frames of Copydesk's RPC protocol: what travels, not how.

One protocol serves both hops, gateway to RPC worker and RPC worker to engine. A frame is a msgpack array whose
first element is its tag, behind a four-byte big-endian length; many requests are in flight on one connection.
Payloads stay encoded (`msgspec.Raw`), so that a hop can pass on what it does not need to read.

Each side opens with `Hello`; the client's comes first. Deadlines travel as remaining milliseconds, so that no
two clocks need to agree.
"""

from __future__ import annotations

import enum

import msgspec

from copydesk.common.messages import EndpointState

PROTOCOL_VERSION = 1


class Priority(enum.IntEnum):
    """Which work waits behind which: a lower number goes first."""

    INTERACTIVE = 0
    BATCH = 1


class Status(enum.IntEnum):
    """How a request ended.

    Only `UNAVAILABLE` means that another pod may well do better at once (connection lost, engine died,
    draining). `OVERLOADED` is back-pressure, `INVALID` is the request's own fault.
    """

    OK = 0
    INVALID = 1
    OVERLOADED = 2
    DEADLINE_EXCEEDED = 3
    UNAVAILABLE = 4
    INTERNAL = 5
    CANCELLED = 6


class Load(msgspec.Struct, frozen=True, array_like=True):
    """How busy a pod is: requests running and queued, how many can run at once, recent milliseconds a step."""

    running: int = 0
    queued: int = 0
    capacity: int = 1
    step_ms: float = 0.0


class Fault(msgspec.Struct, frozen=True, array_like=True):
    """Why a request failed: a stable code for programs, a message for people.

    `parameter` names the field of the request that is to blame, where one is.
    """

    code: str
    message: str
    retry_after_ms: int = 0
    parameter: str = ""


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """Who is at the other end. A client fills `peer` and `token`; a server fills the rest too."""

    version: int
    peer: str
    token: str = ""
    model: str = ""
    digest: str = ""
    capacity: int = 0
    state: EndpointState = EndpointState.READY


class Request(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Work to do; `id` is the client's, unique on this connection.

    `trace` is the `traceparent` of the span that this is a part of, empty where requests are not traced.
    """

    id: int
    deadline_ms: int
    priority: Priority
    payload: msgspec.Raw
    trace: str = ""


class Response(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The end of a request; `load` is the pod's at this moment. `fault` is set unless the status is `OK`."""

    id: int
    status: Status
    load: Load
    payload: msgspec.Raw = msgspec.Raw(b"\xc0")
    fault: Fault | None = None


class Chunk(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """A part of a streamed answer; a `Response` still follows."""

    id: int
    payload: msgspec.Raw


class Cancel(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """The client no longer wants the answer; nothing is sent back for it."""

    id: int


class Drain(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """The server takes no new requests, and answers those it has."""


class Ping(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Are you there?"""

    id: int


class Pong(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """I am, and this busy."""

    id: int
    load: Load
    state: EndpointState


AnyFrame = Hello | Request | Response | Chunk | Cancel | Drain | Ping | Pong
