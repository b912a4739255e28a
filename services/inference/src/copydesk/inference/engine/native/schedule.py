"""Who runs next, with how many tokens and how many guesses: decisions over data, no tensors and no clock."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from itertools import accumulate

from copydesk.common.rpc.frames import Priority
from copydesk.inference.engine.native.generation import Generation
from copydesk.inference.engine.native.layout import Run

_FREE_SHARE = 12  # a draft that fills one such part of its request's share of the budget costs next to nothing
_Portion = tuple[Generation, int]  # and how many of its pending tokens go in


def overdue(generations: Iterable[Generation], now: float) -> list[Generation]:
    """Those whose deadline is not after `now`."""
    return [generation for generation in generations if generation.deadline <= now]


def admissions(waiting: Iterable[Generation], free: int, cache_tokens: int) -> list[Generation]:
    """Which of the waiting get the `free` slots: interactive before batch, first come first served within.

    What they may come to need of the cache is at most `cache_tokens`. Who does not fit makes those behind wait
    too, or a long request might wait for ever.
    """
    by_turn = heapq.nsmallest(free, waiting, key=_turn)
    needed = accumulate(generation.reserve for generation in by_turn)
    return [generation for generation, total in zip(by_turn, needed, strict=True) if total <= cache_tokens]


def displaced(waiting: Iterable[Generation], priority: Priority) -> Generation | None:
    """Which of the waiting gives way to a newcomer when no more may wait: the last, if it is less urgent."""
    last = max(waiting, key=_turn, default=None)
    return last if last is not None and last.priority > priority else None


def plan(running: Iterable[Generation], prefill_tokens: int, draft_tokens: int) -> list[Run]:
    """One step: a token for everyone who decodes, up to `prefill_tokens` tokens of prompts, and drafts.

    Prompts are cut rather than put off, so that a long one delays the others' next token by a bounded time; they
    go in by turn, so that the first in line samples as early as it can. Drafts fill what those who decode leave of
    `draft_tokens`: with fewer tokens a step's fixed cost outweighs theirs, with more the wrong guesses' cost does.
    """
    portions: list[_Portion] = []
    prompts: list[Generation] = []
    for generation in running:
        if generation.tokens:
            portions.append((generation, 1))
        else:
            prompts.append(generation)
    budget = draft_tokens - len(portions)
    for generation in sorted(prompts, key=_turn):
        if prefill_tokens <= 0:
            break
        portions.append((generation, min(generation.pending, prefill_tokens)))
        prefill_tokens -= portions[-1][1]
    drafts = _drafts([generation for generation, count in portions if count == generation.pending], budget)
    return [_run(generation, count, drafts.get(generation.id, [])) for generation, count in portions]


def share(budget: int, wanted: Sequence[int]) -> list[int]:
    """Divide `budget` so that nobody gets more than wanted, and nobody less while another gets more."""
    given = [0] * len(wanted)
    for rank, index in enumerate(sorted(range(len(wanted)), key=wanted.__getitem__)):
        given[index] = min(wanted[index], budget // (len(wanted) - rank))
        budget -= given[index]
    return given


def _drafts(sampling: Sequence[Generation], budget: int) -> dict[int, list[int]]:
    """Drafts by request, for those who sample; together they have at most `budget` tokens."""
    if budget <= 0:
        return {}
    free = budget // (_FREE_SHARE * len(sampling)) if sampling else 0
    drafts = [generation.draft(free, budget) for generation in sampling]
    shares = share(budget, [len(draft) for draft in drafts])
    return {g.id: draft[:count] for g, draft, count in zip(sampling, drafts, shares, strict=True)}


def _turn(generation: Generation) -> tuple[int, int]:
    return generation.priority, generation.id


def _run(generation: Generation, count: int, draft: list[int]) -> Run:
    return Run(
        request_id=generation.id,
        slot=generation.slot,
        start=generation.cached,
        tokens=generation.next_tokens(count) + draft,
        samples=1 + len(draft) if count == generation.pending else 0,
        scores=count == generation.pending and not generation.request.sampling.is_greedy,
    )
