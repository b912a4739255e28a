"""What the compiled module has; the sources in `csrc` say what it means."""

from collections.abc import Callable, Sequence

Ended = tuple[int, float, list[int]]
"""Requests that ended alike: how many, the seconds that they took together, and their histogram."""

FormTally = tuple[Ended, Ended]
"""Requests that were answered, and those whose clients left."""

Resume = Callable[[object, object, bytes, int, float, float, str], bool]
"""Takes a request over: connection, pod, data, id of the frame, when it was sent, deadline, id of the request."""

class Account:
    """The numbers of a pod's ledger."""

    in_flight: int
    requests: int
    errors: int
    failures: int
    samples: int
    _heard: int
    _queued: int
    _sent_since_load: int
    _capacity: int
    _awaited: int
    mean_ms: float
    answered_at: float
    weight: float
    _heard_at: float
    _load_valid: float
    _full_until: float
    _waiting_since: float
    _latency_ms: float
    _latency_at: float
    _tau: float

class Cell:
    """One number of one client."""

    value: int

class Places:
    """The places at the pods."""

    underway: int
    ended: int
    waiting: int

class Port:
    """A connection to a pod, which it shares with the lane; `most` are the bytes of a frame."""

    def __init__(
        self,
        lane: Lane,
        owner: object,
        account: Account,
        write: Callable[[bytes], object],
        digest: bytes,
        most: int,
    ) -> None: ...
    @property
    def in_frame(self) -> bool: ...
    @property
    def open(self) -> bool: ...
    def feed(self, data: bytes) -> list[bytes] | None: ...
    def recall(self) -> None: ...
    def close(self) -> None: ...

class Seat:
    """A connection of a client, which it shares with the lane."""

    stirred: bool

    def __init__(self, lane: Lane, owner: object, write: Callable[[bytes], object]) -> None: ...
    @property
    def busy(self) -> bool: ...
    def take(self, data: bytes) -> bool: ...
    def recall(self) -> None: ...
    def close(self) -> None: ...

class Lane:
    """Carries plain requests to pods and back."""

    active: bool

    def __init__(
        self,
        places: Places,
        model: bytes,
        model_json: bytes,
        most_body: int,
        most_characters: int,
        token: bytes,
        seed: int,
        bounds: Sequence[float],
        resume: Resume,
        wake: Callable[[], object],
        alarm: Callable[[float], object],
        let_in: Callable[[], object],
    ) -> None: ...
    @property
    def heads(self) -> int: ...
    @property
    def underway(self) -> int: ...
    def choose_from(
        self, near: Sequence[Port], far: Sequence[Port], allowance: int, spillover: float, /
    ) -> None: ...
    def learn(
        self,
        head: bytes,
        form: int,
        priority: int,
        allowed: float,
        inside: Cell | None,
        concurrency: int,
        due: Cell | None,
        interval: int,
        burst: int,
        session: bytes = b"",
    ) -> bool: ...
    def divide(self, seed: int, share: float, copied: float, /) -> None: ...
    def take_drawn(self) -> int: ...
    def share(self, elsewhere: dict[bytes, object], /) -> None: ...
    def forget(self) -> None: ...
    def flush(self) -> None: ...
    def sweep(self, now: float, /) -> float: ...
    def underway_seconds(self, now: float, /) -> float: ...
    def recall(self) -> None: ...
    def take_started(self) -> int: ...
    def drain(self) -> tuple[list[FormTally], list[float], list[float], tuple[int, float]]: ...
    def close(self) -> None: ...

def completion_task(body: bytes, model: bytes, /) -> bytes | None: ...
def chat_task(body: bytes, model: bytes, /) -> bytes | None: ...
def completion_answer(
    payload: bytes, request_id: bytes, created: int, model_json: bytes, digest_json: bytes, /
) -> bytes | None: ...
def chat_answer(
    payload: bytes, request_id: bytes, created: int, model_json: bytes, digest_json: bytes, /
) -> bytes | None: ...
def correction_task(body: bytes, model: bytes, most_characters: int, /) -> tuple[bytes, bytes] | None: ...
def correction_answer(
    payload: bytes, sentence: bytes, request_id: bytes, model_json: bytes, digest_json: bytes, latency_us: int, /
) -> bytes | None: ...
