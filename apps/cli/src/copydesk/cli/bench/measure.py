"""One contender under one load: what came of it, in figures."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from copydesk.cli.bench.contender import Contender
from copydesk.cli.bench.workload import Prompt
from copydesk.loadtest import run_closed


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """A closed loop with `concurrency` users. Latencies are in milliseconds, in the order of the answers.

    `answers` are pairs of a prompt's index and its answer; `passes` is the mean number of the model's passes a
    request, none where the engine does not tell. `workload` is "corrections" or "random_50_50".
    """

    round: int
    setting: str
    workload: str
    concurrency: int
    requests_per_second: float
    latencies_ms: tuple[float, ...]
    passes: float | None
    failed: int
    failures: tuple[str, ...]
    answers: tuple[tuple[int, str], ...] = ()


async def measure(
    contender: Contender,
    prompts: Sequence[Prompt],
    indices: Sequence[int],
    concurrency: int,
    *,
    round_: int = 0,
    workload: str = "corrections",
) -> Measurement:
    """Send the prompts of `indices`, `concurrency` at a time."""
    latencies: list[float] = []
    answers: list[tuple[int, str]] = []

    async def send(number: int) -> None:
        index = indices[number]
        began = time.perf_counter()
        answer = await contender.answer(prompts[index])
        latencies.append(round(1000 * (time.perf_counter() - began), 2))
        answers.append((index, answer))

    before = await contender.counts()
    report = await run_closed(len(indices), send, concurrency=concurrency)
    after = await contender.counts()
    return Measurement(
        round=round_,
        setting=contender.setting.name,
        workload=workload,
        concurrency=concurrency,
        requests_per_second=report.achieved_rate,
        latencies_ms=tuple(latencies),
        passes=after.since(before) if before and after else None,
        failed=report.failed,
        failures=tuple(f"{kind.kind}: {message}" for kind in report.failures for message in kind.messages),
        answers=tuple(answers),
    )
