"""Who runs next, and with how many tokens: decisions over data, no tensors and no clock."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from copydesk.inference.engine.native.generation import Generation
from copydesk.inference.engine.native.layout import Run


def overdue(generations: Iterable[Generation], now: float) -> list[Generation]:
    """Those whose deadline is not after `now`."""
    return [generation for generation in generations if generation.deadline <= now]


def admissions(waiting: Iterable[Generation], free: int) -> list[Generation]:
    """Which of the waiting get the `free` slots: interactive before batch, first come first served within."""
    return heapq.nsmallest(free, waiting, key=_turn)


def plan(running: Iterable[Generation], prefill_tokens: int) -> list[Run]:
    """One step: a token for everyone who decodes, and up to `prefill_tokens` tokens of prompts.

    Prompts are cut rather than put off, so that a long one delays the others' next token by a bounded time; they
    go in by turn, so that the first in line samples as early as it can.
    """
    runs: list[Run] = []
    prompts: list[Generation] = []
    for generation in running:
        if generation.tokens:
            runs.append(_run(generation, 1))
        else:
            prompts.append(generation)
    for generation in sorted(prompts, key=_turn):
        if prefill_tokens <= 0:
            break
        runs.append(_run(generation, min(generation.pending, prefill_tokens)))
        prefill_tokens -= len(runs[-1].tokens)
    return runs


def _turn(generation: Generation) -> tuple[int, int]:
    return generation.priority, generation.id


def _run(generation: Generation, count: int) -> Run:
    return Run(
        request_id=generation.id,
        slot=generation.slot,
        start=generation.cached,
        tokens=generation.next_tokens(count),
        samples=count == generation.pending,
    )
