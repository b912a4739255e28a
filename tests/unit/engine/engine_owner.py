"""The owner of a compiled engine that steps by itself: submits, delivers, and keeps what was delivered."""

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from copydesk.common.rpc.frames import Priority
from copydesk.inference.engine import GeneratedTokens, GenerateTokens
from copydesk.inference.engine.compiled import load_library
from copydesk.inference.engine.native import CompiledEngine
from copydesk.inference.engine.native.devices import Device, NullDevice, OverlappingNullDevice

VOCABULARY = 200
PATIENCE = 20.0


class Owner:
    """Runs an engine on a thread, delivers on its own, and keeps what was delivered.

    A step takes a while, so that what is endless does not end before it is told to.
    """

    def __init__(self, device: Device | None = None, *, milliseconds: float = 0.1, **changes: Any) -> None:
        library = load_library()
        sizes: dict[str, Any] = {
            "slots": 4,
            "queue": 1000,
            "context": 100_000,
            "prefill_tokens": 64,
            "draft_tokens": 0,
            "asynchronous": True,
        }
        kind = OverlappingNullDevice if changes.pop("overlapping", False) else NullDevice
        null = kind(library, seconds=milliseconds / 1000, vocabulary=VOCABULARY)
        self.engine = CompiledEngine(library, device or null, vocabulary=VOCABULARY, **sizes | changes)
        self.answers: dict[int, GeneratedTokens] = {}
        self.streamed: dict[int, list[int]] = {}
        self.steps: list[float] = []
        self.failure: BaseException | None = None
        self._submitted: list[int] = []
        self._lock = threading.Lock()
        self._poll = select.poll()
        self._poll.register(self.engine.event_fd, select.POLLIN)
        self._thread = threading.Thread(target=self._run)

    def submit(
        self,
        request: GenerateTokens,
        *,
        deadline: float = 1e9,
        priority: Priority = Priority.INTERACTIVE,
        then: Callable[[GeneratedTokens], None] | None = None,
    ) -> int:
        """Returns an index of its own: the answer may come before the engine's number does."""
        with self._lock:
            index = len(self._submitted)
            self._submitted.append(0)

        def done(answer: GeneratedTokens) -> None:
            assert index not in self.answers, "answered twice"
            self.answers[index] = answer
            if then is not None:
                then(answer)

        def stream(tokens: list[int]) -> None:
            assert index not in self.answers, "streamed after its end"
            self.streamed.setdefault(index, []).extend(tokens)

        self._submitted[index] = self.engine.submit(
            request, deadline=deadline, priority=priority, on_done=done, on_tokens=stream
        )
        return index

    def cancel(self, index: int) -> None:
        self.engine.cancel(self._submitted[index])

    def start(self) -> None:
        self._thread.start()

    def deliver(self) -> None:
        """Wait until there is something to deliver, and do."""
        assert self._poll.poll(PATIENCE * 1000), "nothing happens any more"
        os.eventfd_read(self.engine.event_fd)
        self.engine.deliver(self.steps.append)

    def quiet(self) -> bool:
        return not self._poll.poll(0)

    def until(self, seen: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not seen():
            assert time.monotonic() < deadline
            self.deliver()

    def answered(self, *indices: int) -> None:
        self.until(lambda: all(index in self.answers for index in indices))

    def close(self) -> None:
        self.engine.halt()
        if self._thread.ident is not None:
            self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        self.engine.deliver(self.steps.append)
        self.engine.close()

    def _run(self) -> None:
        try:
            self.engine.run()
        except BaseException as error:
            self.failure = error


@contextlib.contextmanager
def running(device: Device | None = None, **changes: Any) -> Iterator[Owner]:
    owner = Owner(device, **changes)
    owner.start()
    try:
        yield owner
    finally:
        owner.close()
