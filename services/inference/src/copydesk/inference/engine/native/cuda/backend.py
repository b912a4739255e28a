"""Where padded steps run: a GPU, or a stand-in that keeps the same order on a processor.

All work of a device is submitted here, in order, and seen to be done by marks. That is what a CUDA stream and its
events are; the stand-in puts everything off until somebody waits for it, or does it when a test says so, so that
whoever overwrites what is still to be read is caught on any machine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Protocol

import torch

Work = Callable[[], object]
Wait = Callable[[], object]
"""Returns when all that had been submitted before it was made is done."""


class Backend(Protocol):
    """Runs work in the order in which it is submitted, some time after."""

    @property
    def device(self) -> torch.device:
        """Where tensors have to be."""
        ...

    def scope(self) -> AbstractContextManager[object]:
        """Return what everything else has to be called within."""
        ...

    def host_numbers(self, count: int) -> torch.Tensor:
        """Return room for `count` integers of 64 bits in main memory, which the device copies from and to."""
        ...

    def prepare(self, work: Work) -> Work:
        """Return what does the same as `work` as fast as it goes; the work is done now, too, perhaps repeatedly.

        It must always do the same to the same memory, and nothing that waits for the device.
        """
        ...

    def submit(self, work: Work) -> None:
        """Have work done: at any time from now to when a later mark has been waited for."""
        ...

    def mark(self) -> Wait:
        """Return how to wait for what was submitted until now."""
        ...


class GpuBackend:
    """A stream of a GPU. What is prepared is captured as a CUDA graph; all graphs share one pool of memory.

    They may share it because they run one after another, and because what must outlive a run lies outside of it.
    """

    def __init__(self, device: torch.device) -> None:
        # Its plans are made at the first call of every shape; what else attends under a mask needs none.
        torch.backends.cuda.enable_cudnn_sdp(False)
        self.device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()
        torch.cuda.synchronize(device)  # weights and cache were made on another stream

    def scope(self) -> AbstractContextManager[object]:
        """Make the stream current: which one is, each thread knows for itself."""
        return torch.cuda.stream(self._stream)

    def host_numbers(self, count: int) -> torch.Tensor:
        """Pinned memory: only from there a copy does not hold up the host."""
        return torch.zeros(count, dtype=torch.int64, pin_memory=True)

    def prepare(self, work: Work) -> Work:
        """Capture, after running it on the same stream: libraries set themselves up at the first call.

        The mode lets other threads go on, which may allocate memory of their own meanwhile.
        """
        for _ in range(2):
            work()
        self._stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
            work()
        return graph.replay

    def submit(self, work: Work) -> None:
        """Launch it."""
        work()

    def mark(self) -> Wait:
        """Record an event."""
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(self._stream)
        return event.synchronize


class ProcessorBackend:
    """The stand-in: a queue that is worked off as far as somebody waits for it.

    `haste` is asked whenever work is submitted, and says how much of what is in the queue is done at once.
    """

    def __init__(self, haste: Callable[[], int] = lambda: 0) -> None:
        self._haste = haste
        self.device = torch.device("cpu")
        self._queue: deque[Work] = deque()
        self._submitted = 0

    def scope(self) -> AbstractContextManager[object]:
        """Nothing."""
        return nullcontext()

    def host_numbers(self, count: int) -> torch.Tensor:
        """Plain memory."""
        return torch.zeros(count, dtype=torch.int64)

    def prepare(self, work: Work) -> Work:
        """Try it."""
        work()
        return work

    def submit(self, work: Work) -> None:
        """Put it off."""
        self._queue.append(work)
        self._submitted += 1
        done = self._submitted - len(self._queue)
        self._catch_up(min(done + self._haste(), self._submitted))

    def mark(self) -> Wait:
        """Remember how much there is to do."""
        return partial(self._catch_up, self._submitted)

    def _catch_up(self, until: int) -> None:
        while self._submitted - len(self._queue) < until:
            self._queue.popleft()()
