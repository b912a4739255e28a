"""The device of GPUs: every step padded to a bucket, one copy in and one out, and tokens that stay there."""

from __future__ import annotations

import ctypes
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from copydesk.common.telemetry import get_logger
from copydesk.inference.engine.native.cuda.backend import Backend, Wait, Work
from copydesk.inference.engine.native.cuda.buckets import Bucket, Extent
from copydesk.inference.engine.native.cuda.padded_layout import CompiledPad, Pad, places_of
from copydesk.inference.engine.native.cuda.padded_step import known_tokens, padded_step
from copydesk.inference.engine.native.devices import CalledOverlappingDevice
from copydesk.inference.engine.native.flat_layout import LayoutRoom
from copydesk.inference.engine.native.runner import TorchRunner, likeliest

_log = get_logger(__name__)

_LANES = 2  # kStepsUnderWay of csrc/step.hpp
_PROGRESS_SECONDS = 2.0


class _Lane:
    """Buffers in main memory of one step under way; the next step has others, and the one after it these again."""

    def __init__(self, backend: Backend, numbers: int, samples: int) -> None:
        self.numbers = backend.host_numbers(numbers)
        self.room: NDArray[np.int64] = self.numbers.numpy()
        self.chosen = backend.host_numbers(samples)
        self.read: Wait = backend.mark()  # of when the device has read `numbers`


@dataclass(slots=True)
class _UnderWay:
    step: Any
    lane: _Lane
    done: Wait
    scores: torch.Tensor | None = None


class BucketDevice(CalledOverlappingDevice):
    """Computes steps by what was prepared for their bucket; those that fit none are computed as they are.

    The tokens that a step chooses stay on the device, in the order of its samples, for the next step to be begun
    before anybody knows them; a copy of them is all that comes back. Scores are wanted of few samples: the device
    keeps the states that the samples' scores are made of, and makes them again of those that are asked for.

    Raises, where there is no memory for so many buckets, what the backend raises.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        runner: TorchRunner,
        backend: Backend,
        extent: Extent,
        buckets: Sequence[Bucket],
        pad: Pad | None = None,
    ) -> None:
        """`pad` is how steps are laid out: in C++ unless told otherwise."""
        super().__init__()
        self._runner = runner
        self._backend = backend
        self._buckets = tuple(buckets)
        self._places = tuple(places_of(bucket) for bucket in buckets)
        self._pad = pad or CompiledPad(library, buckets, runner.context, runner.spare_row)
        self._flat = LayoutRoom(library, runner.context)
        self._under_way: deque[_UnderWay] = deque()
        self._turn = 0
        numbers = max((places.size for places in self._places), default=0)
        with torch.inference_mode(), backend.scope():
            self._numbers = torch.zeros(numbers, dtype=torch.int64, device=backend.device)
            self._chosen = torch.zeros(extent.samples, dtype=torch.int64, device=backend.device)
            self._states = runner.no_states(extent.samples)
            self._lanes = [_Lane(backend, numbers, extent.samples) for _ in range(_LANES)]
            self._prepared = self._prepare()

    def begin(self, step: Any) -> None:
        """Launch a step."""
        with torch.inference_mode(), self._backend.scope():
            lane = self._lanes[self._turn % _LANES]
            lane.read()
            bucket = self._pad(step, lane.room)
            if bucket is None:
                self._begin_flat(step)
            else:
                self._begin_padded(bucket, lane)
            under_way = _UnderWay(step, lane, lane.read)
            self._bring_back(under_way)
            under_way.done = self._backend.mark()
            self._under_way.append(under_way)
            self._turn += 1

    def finish(self) -> None:
        """Wait for the first step under way, and hand over what it found."""
        under_way = self._under_way.popleft()
        step = under_way.step
        with torch.inference_mode(), self._backend.scope():
            under_way.done()
            if step.samples:
                found = under_way.lane.chosen.numpy()[: step.samples]
                np.ctypeslib.as_array(step.chosen, (step.samples,))[:] = found
            if under_way.scores is not None:
                rows = np.ctypeslib.as_array(step.scores, tuple(under_way.scores.shape))
                torch.from_numpy(rows).copy_(under_way.scores)

    def _prepare(self) -> list[Work]:
        """The largest first, so that the others find the memory that they need in the pool."""
        prepared: dict[int, Work] = {}
        began = told = time.monotonic()
        for index in reversed(range(len(self._buckets))):
            prepared[index] = self._prepared_for(index)
            if (now := time.monotonic()) - told > _PROGRESS_SECONDS:
                told = now
                _log.info("buckets_being_prepared", done=len(prepared), of=len(self._buckets))
        _log.info("buckets_prepared", buckets=len(prepared), seconds=round(time.monotonic() - began, 1))
        return [prepared[index] for index in range(len(self._buckets))]

    def _prepared_for(self, index: int) -> Work:
        bucket, places = self._buckets[index], self._places[index]
        self._numbers.zero_()
        self._numbers[places.cache_rows].fill_(self._runner.spare_row)

        def compute() -> None:
            step = padded_step(
                bucket, places, self._numbers, self._chosen, self._runner.rope, self._runner.query_group
            )
            self._keep(self._runner.states(step))

        return self._backend.prepare(compute)

    def _begin_padded(self, bucket: int, lane: _Lane) -> None:
        size = self._places[bucket].size
        target, source = self._numbers[:size], lane.numbers[:size]
        self._backend.submit(lambda: target.copy_(source, non_blocking=True))
        lane.read = self._backend.mark()
        self._backend.submit(self._prepared[bucket])

    def _begin_flat(self, step: Any) -> None:
        """Compute a step as it is, and wait for it: its numbers lie where those of the next one will."""
        layout = self._flat.lay_out(step)

        def compute() -> None:
            numbers = torch.from_numpy(layout.numbers).to(self._backend.device)
            tokens = numbers[layout.tokens]
            tokens.copy_(known_tokens(tokens, self._chosen))
            states = self._runner.flat_states(layout, numbers)
            if step.samples:
                self._keep(states.index_select(0, numbers[layout.places]))

        self._backend.submit(compute)
        self._backend.mark()()

    def _keep(self, states: torch.Tensor) -> None:
        """Choose the tokens of samples, and keep both for later."""
        samples = states.shape[0]
        self._chosen[:samples].copy_(likeliest(self._runner.scores(states)))
        self._states[:samples].copy_(states)

    def _bring_back(self, under_way: _UnderWay) -> None:
        step, lane = under_way.step, under_way.lane
        samples = step.samples
        if samples:
            self._backend.submit(lambda: lane.chosen[:samples].copy_(self._chosen[:samples], non_blocking=True))
        if not step.scored:
            return
        wanted = [self._states[samples] for samples in _scored_samples(step)]

        def score() -> None:
            under_way.scores = self._runner.scores(torch.cat(wanted)).float()

        self._backend.submit(score)


def _scored_samples(step: Any) -> list[slice]:
    """Which of the samples are of runs with scores, run by run."""
    scored: list[slice] = []
    sample = 0
    for run in step.run[: step.runs]:
        if run.scores:
            scored.append(slice(sample, sample + run.samples))
        sample += run.samples
    return scored
