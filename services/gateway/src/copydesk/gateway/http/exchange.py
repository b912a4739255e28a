"""One request on the hot path, as its handler sees it: complete, and answered by calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from copydesk.gateway.faults import ApiError

Headers = Sequence[tuple[bytes, bytes]]


class Exchange(Protocol):
    """A request whose head and body have come whole, within the limits on both.

    Exactly one of `respond`, `fail` and `begin` answers it; after `begin` come any `write`s, and one `end`. Each
    call after the client has gone does nothing.
    """

    path: str
    request_id: str
    headers: Mapping[bytes, bytes]
    """By lower-case name, the last of each."""
    body: bytes
    arrived: float
    """When its head was complete, in the event loop's time."""
    client: str
    """The name of the API key that it came with; empty where keys are off."""
    on_gone: Callable[[], None] | None
    """Set by the handler; called once if the client leaves before the answer is complete."""

    def respond(
        self, body: bytes, *, status: int = 200, headers: Headers = (), kind: bytes = b"application/json"
    ) -> None:
        """Answer with a whole body."""
        ...

    def fail(self, error: ApiError) -> None:
        """Answer with an error in OpenAI's shape."""
        ...

    def begin(self, *, kind: bytes, headers: Headers = ()) -> None:
        """Begin an answer with status 200 whose parts come one by one."""
        ...

    def write(self, part: bytes) -> None:
        """Send a part; what is written in one turn of the loop goes out together."""
        ...

    def end(self) -> None:
        """Say that the answer is complete."""
        ...


Handler = Callable[[Exchange], None]
"""Takes a request; returns at once, answers now or later. What it raises becomes a 500, an `ApiError` its body."""


def header(exchange: Exchange, name: bytes) -> str | None:
    """Return a header of a request by its lower-case name, None where it has none."""
    value = exchange.headers.get(name)
    return None if value is None else value.decode("latin-1")
