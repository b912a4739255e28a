"""From measurements to the figures that are compared: medians, quantiles, identity, ratios."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from copydesk.cli.bench.measure import Measurement
from copydesk.cli.bench.setting import OURS, VLLM, Setting
from copydesk.loadtest.report import nearest_rank

CORRECTIONS = "corrections"
RANDOM = "random_50_50"


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """A setting with so many users: the median rate of the rounds, quantiles of all their latencies together."""

    concurrency: int
    requests_per_second: float
    rate_by_round: tuple[float, ...]
    p50_ms: float
    p99_ms: float
    passes_per_request: float | None
    requests: int
    failed: int


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """A setting. Latency and passes are those of one user at a time, the rate that of the best of the many.

    `identical_to_greedy` is the share of the answers under that load that equal what the same engine, in the same
    arithmetic, answers to the same text token by token and one at a time; none where that was not measured.
    """

    requests_per_second: float
    p50_ms: float
    p99_ms: float
    passes_per_request: float | None
    identical_to_greedy: float | None
    concurrency: int
    saturated: Level
    levels: tuple[Level, ...]


class Ratios(msgspec.Struct, frozen=True, kw_only=True):
    """Ours divided by theirs, each side's best setting for the figure; `settings` names them, ours first."""

    requests_per_second: float | None
    p50_ms: float | None
    p99_ms: float | None
    passes_per_request: float | None
    identical_to_greedy: float | None
    settings: dict[str, tuple[str, str]]


_BEST: Mapping[str, Callable[[Iterable[float]], float]] = {
    "requests_per_second": max,
    "p50_ms": min,
    "p99_ms": min,
    "passes_per_request": min,
    "identical_to_greedy": max,
}


def level(measurements: Sequence[Measurement]) -> Level:
    """Sum up the rounds of one setting with the same number of users."""
    latencies = sorted(latency for one in measurements for latency in one.latencies_ms)
    passes = [one.passes for one in measurements if one.passes is not None]
    return Level(
        concurrency=measurements[0].concurrency,
        requests_per_second=round(statistics.median(one.requests_per_second for one in measurements), 3),
        rate_by_round=tuple(round(one.requests_per_second, 3) for one in measurements),
        p50_ms=nearest_rank(latencies, 0.5) if latencies else float("inf"),
        p99_ms=nearest_rank(latencies, 0.99) if latencies else float("inf"),
        passes_per_request=round(statistics.fmean(passes), 3) if passes else None,
        requests=len(latencies),
        failed=sum(one.failed for one in measurements),
    )


def levels(measurements: Iterable[Measurement], setting: str, workload: str) -> list[Level]:
    """Sum up a setting by the number of users, the fewest first."""
    by_users: dict[int, list[Measurement]] = {}
    for one in measurements:
        if (one.setting, one.workload) == (setting, workload):
            by_users.setdefault(one.concurrency, []).append(one)
    return [level(by_users[users]) for users in sorted(by_users)]


def best_level(found: Sequence[Level]) -> Level:
    """Return the level with the highest rate."""
    return max(found, key=lambda one: one.requests_per_second)


def reference(measurements: Iterable[Measurement], setting: Setting) -> dict[int, str]:
    """Return the answers that the setting's plain form gave one at a time, by the index of the text.

    An engine in the same arithmetic that does not repeat itself keeps the first.
    """
    answers: dict[int, str] = {}
    for one in measurements:
        if (one.setting, one.workload, one.concurrency) == (setting.plain_name, CORRECTIONS, 1):
            for index, answer in one.answers:
                answers.setdefault(index, answer)
    return answers


def identity(answers: Iterable[tuple[int, str]], greedy: Mapping[int, str]) -> float | None:
    """Return the share of the answers that equal the greedy ones, of those whose greedy answer is known."""
    equal = [answer == greedy[index] for index, answer in answers if index in greedy]
    return round(sum(equal) / len(equal), 4) if equal else None


def figures(measurements: Sequence[Measurement], setting: Setting) -> Figures | None:
    """Return a setting's figures; None unless it answered one user as well as many."""
    found = levels(measurements, setting.name, CORRECTIONS)
    many = [one for one in found if one.concurrency > 1 and one.requests]
    if not many or found[0].concurrency != 1 or not found[0].requests:
        return None
    alone, best = found[0], best_level(many)
    loaded = [
        pair
        for one in measurements
        if (one.setting, one.workload, one.concurrency) == (setting.name, CORRECTIONS, best.concurrency)
        for pair in one.answers
    ]
    return Figures(
        requests_per_second=best.requests_per_second,
        p50_ms=alone.p50_ms,
        p99_ms=alone.p99_ms,
        passes_per_request=alone.passes_per_request,
        identical_to_greedy=identity(loaded, reference(measurements, setting)),
        concurrency=best.concurrency,
        saturated=best,
        levels=tuple(found),
    )


def ratios(ours: Mapping[str, Figures], theirs: Mapping[str, Figures]) -> Ratios:
    """Compare the best of ours with the best of theirs, figure by figure."""
    found: dict[str, float | None] = {}
    settings: dict[str, tuple[str, str]] = {}
    for key in _BEST:
        our, their = best_setting(ours, key), best_setting(theirs, key)
        if our is None or their is None or getattr(theirs[their], key) == 0:
            found[key] = None
            continue
        found[key] = round(getattr(ours[our], key) / getattr(theirs[their], key), 4)
        settings[key] = (our, their)
    return Ratios(settings=settings, **found)


def best_setting(found: Mapping[str, Figures], key: str) -> str | None:
    """Return the name of the setting with the best value of a figure, None where no setting has it."""
    known = {name: getattr(one, key) for name, one in found.items() if getattr(one, key) is not None}
    if not known:
        return None
    best = _BEST[key](known.values())
    return next(name for name, value in known.items() if value == best)


def of_engine(
    found: Mapping[str, Figures], settings: Iterable[Setting], engine: str, *, plain: bool | None = None
) -> dict[str, Figures]:
    """Return the figures of one engine; only of its plain settings, or only of the others, if asked."""
    return {
        setting.name: found[setting.name]
        for setting in settings
        if setting.engine == engine and setting.name in found and plain in (None, setting.is_plain)
    }


def random_ratios(found: Mapping[str, Level]) -> dict[str, float]:
    """Return our rates on random tokens divided by that of vLLM in bfloat16, by our settings."""
    theirs = found.get(f"{VLLM} bf16")
    if theirs is None or not theirs.requests_per_second:
        return {}
    return {
        name: round(one.requests_per_second / theirs.requests_per_second, 4)
        for name, one in found.items()
        if name.startswith(f"{OURS} ")
    }
