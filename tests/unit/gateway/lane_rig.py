"""The compiled lane without a gateway: ports and seats whose ends are the test's."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import msgspec

from copydesk.common.rpc.codec import FrameParser, encode_frame
from copydesk.common.rpc.frames import AnyFrame, Load, Request, Response, Status
from copydesk.common.tasks import CorrectedSentence, GeneratedText, Outcome, Stopped
from copydesk.gateway.lane.storage import storage
from copydesk.gateway.metrics import LATENCY_BUCKETS
from copydesk.routing import LedgerRules

MODEL = "gec-en"
BODY = b'{"prompt":"Once upon a time"}'
ANSWER = msgspec.msgpack.encode(GeneratedText("there was", Stopped.STOP, None, 4, 2))
SENTENCE = b'{"text":"She go."}'
CORRECTED = msgspec.msgpack.encode(CorrectedSentence("She goes.", Outcome.CORRECTED, 3, 3))
COMPLETION, CHAT, CORRECTION = range(3)


def head(length: int, *lines: str, path: str = "/v1/completions") -> bytes:
    """A plain head."""
    fields = [f"POST {path} HTTP/1.1", "Host: x", "Content-Type: application/json", f"Content-Length: {length}"]
    return "\r\n".join([*fields, *lines, "", ""]).encode()


def request(*lines: str, body: bytes = BODY) -> bytes:
    """A plain request."""
    return head(len(body), *lines) + body


def answer(id_: int, load: Load | None = None, payload: bytes = ANSWER) -> bytes:
    """A pod's answer, as a frame."""
    return encode_frame(Response(id_, Status.OK, load or Load(0, 0, 8, 1.0), msgspec.Raw(payload)))


class RigPort:
    """A connection to a pod; `ledger` is its account as Python sees it."""

    def __init__(self, rig: Rig, name: str, digest: str = "sha256:rig", most: int = 4 << 20) -> None:
        self.name = name
        self.written: list[bytes] = []
        self.ledger: LedgerRules = rig.storage.ledger()
        self.port = rig.native.Port(
            lane=rig.lane,
            owner=name,
            account=self.ledger,
            write=self.written.append,
            digest=digest.encode(),
            most=most,
        )

    @property
    def frames(self) -> list[AnyFrame]:
        """What the lane has sent."""
        return list(FrameParser().feed(b"".join(self.written)))

    @property
    def requests(self) -> list[Request]:
        """The requests among that."""
        return [frame for frame in self.frames if isinstance(frame, Request)]


class RigSeat:
    """A connection of a client."""

    def __init__(self, rig: Rig, name: str = "a client") -> None:
        self.name = name
        self.written: list[bytes] = []
        self.seat = rig.native.Seat(lane=rig.lane, owner=name, write=self.written.append)

    def take(self, data: bytes) -> bool:
        """Offer a request."""
        return bool(self.seat.take(data))


class Rig:
    """A lane whose callbacks are kept in lists; what is handed back is taken over if `takes_over`."""

    def __init__(self, native: ModuleType, ports: int = 1, **lane: Any) -> None:
        self.native = native
        self.storage = storage(native)
        self.places = native.Places()
        self.resumed: list[tuple[Any, ...]] = []
        self.woken = 0
        self.alarms: list[float] = []
        self.let_in = 0
        self.takes_over = True
        arguments: dict[str, Any] = {
            "places": self.places,
            "model": MODEL.encode(),
            "model_json": msgspec.json.encode(MODEL),
            "most_body": 10_000,
            "most_characters": 500,
            "token": b"req-0123456789ab",
            "seed": 7,
            "bounds": LATENCY_BUCKETS,
            "resume": self._resume,
            "wake": self._wake,
            "alarm": self.alarms.append,
            "let_in": self._let_in,
        }
        self.lane = native.Lane(**arguments | lane)
        self.ports = [RigPort(self, f"p{number}") for number in range(ports)]
        self.choose_from(self.ports)
        self.lane.active = True

    def choose_from(
        self,
        near: Sequence[RigPort],
        far: Sequence[RigPort] = (),
        *,
        room: int = 1_000_000,
        spillover: float = 1.5,
    ) -> None:
        """Have requests go to these."""
        self.lane.choose_from([one.port for one in near], [one.port for one in far], room, spillover)

    def learn(self, known: bytes | None = None, **rule: Any) -> bool:
        """Have the lane take requests with a head."""
        allowed: dict[str, Any] = {
            "form": COMPLETION,
            "priority": 0,
            "allowed": 60.0,
            "inside": None,
            "concurrency": 0,
            "due": None,
            "interval": 0,
            "burst": 0,
        }
        return bool(self.lane.learn(head=head(len(BODY)) if known is None else known, **allowed | rule))

    def seat(self, name: str = "a client") -> RigSeat:
        """One more client."""
        return RigSeat(self, name)

    def _resume(self, *arguments: Any) -> bool:
        self.resumed.append(arguments)
        if self.takes_over:
            self.places.underway -= 1
        return self.takes_over

    def _wake(self) -> None:
        self.woken += 1

    def _let_in(self) -> None:
        self.let_in += 1


def framed(body: bytes) -> bytes:
    """Anything as a frame."""
    return struct.pack(">I", len(body)) + body
