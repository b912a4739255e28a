"""What simulations found, in figures."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from copydesk.cli.simulate.ours import Copydesk
from copydesk.cli.simulate.rivals import PERFECT, RIVALS
from copydesk.cli.simulate.scenario import Scenario
from copydesk.cli.simulate.world import Outcome, Rule, World
from copydesk.loadtest.report import nearest_rank

OURS = "copydesk"
CLAIRVOYANT = "soonest answer, clairvoyant"

RULES: dict[str, Callable[[World], Rule]] = {OURS: Copydesk, **RIVALS, **PERFECT}


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """One rule in one scenario: latencies in milliseconds, shares of all requests.

    `odd_share` went to pods that are slow or fail; `longest_queue` is the longest before any pod.
    """

    rule: str
    p50_ms: float
    p99_ms: float
    p999_ms: float
    failed_share: float
    odd_share: float
    longest_queue: int
    requests: int


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One scenario under every rule. `p99_to_perfect` is ours over the best of those with perfect information.

    Perfect information is the true load of every pod at this very moment. The clairvoyant, who also knows which
    pods will be slow, stands in the table as a bound, and not in this ratio.
    """

    scenario: str
    text: str
    pods: int
    gateways: int
    slots: int
    service_ms: float
    load: float
    requests_per_second: float
    seconds: float
    figures: tuple[Figures, ...]
    p99_to_perfect: float | None


class Simulation(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    seed: int
    parts: tuple[Part, ...]
    took_s: float


def simulate(scenarios: Sequence[Scenario], seed: int, tell: Callable[[str], None]) -> Simulation:
    """Run each scenario under each rule; `tell` is called with what comes next."""
    began = time.monotonic()
    parts = tuple(_part(scenario, seed, tell) for scenario in scenarios)
    return Simulation(seed=seed, parts=parts, took_s=round(time.monotonic() - began, 1))


def _part(scenario: Scenario, seed: int, tell: Callable[[str], None]) -> Part:
    found: list[Figures] = []
    for name, rule in RULES.items():
        if name == CLAIRVOYANT and not scenario.slow:
            continue  # it is slow to compute, and says something of slow pods only
        tell(f"{scenario.name}: {name}")
        found.append(_figures(name, World(scenario, seed).run(rule)))
    return Part(
        scenario=scenario.name,
        text=scenario.text,
        pods=scenario.pods,
        gateways=scenario.gateways,
        slots=scenario.slots,
        service_ms=scenario.service_ms,
        load=scenario.load,
        requests_per_second=round(scenario.rate, 1),
        seconds=scenario.seconds,
        figures=tuple(found),
        p99_to_perfect=_to_perfect(found),
    )


def _figures(rule: str, outcome: Outcome) -> Figures:
    latencies = outcome.latencies or [float("inf")]
    ended = max(1, len(outcome.latencies) + outcome.failed)
    return Figures(
        rule=rule,
        p50_ms=round(1000.0 * nearest_rank(latencies, 0.5), 1),
        p99_ms=round(1000.0 * nearest_rank(latencies, 0.99), 1),
        p999_ms=round(1000.0 * nearest_rank(latencies, 0.999), 1),
        failed_share=round(outcome.failed / ended, 6),
        odd_share=round(outcome.odd / max(1, outcome.requests), 4),
        longest_queue=outcome.longest_queue,
        requests=ended,
    )


def _to_perfect(found: Sequence[Figures]) -> float | None:
    perfect = [one.p99_ms for one in found if one.rule in PERFECT and one.rule != CLAIRVOYANT]
    (ours,) = (one.p99_ms for one in found if one.rule == OURS)
    return round(ours / min(perfect), 3) if perfect else None
