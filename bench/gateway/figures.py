"""From rounds to figures, to a table, to JSON: no I/O."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True)
class Round:
    """One turn of one proxy; `added_ms` is set for the one that measured latency, in which no rate counts."""

    name: str
    per_cpu_second: float
    rate: float
    completed: int
    errors: int
    added_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Figures:
    """What was found with one number of pods; each dict is by proxy, ours first."""

    requests_per_cpu_second: dict[str, float]
    ratio: dict[str, float]
    added_latency_ms: dict[str, float]
    errors: dict[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, object]:
        """The figures, rounded to what they are worth."""
        return {
            "requests_per_cpu_second": {
                name: round(value) for name, value in self.requests_per_cpu_second.items()
            },
            "ratio": {name: round(value, 3) for name, value in self.ratio.items()},
            "added_latency_ms": {name: round(value, 3) for name, value in self.added_latency_ms.items()},
            "errors": self.errors,
        }


def figures(rounds: Sequence[Round], ours: str) -> Figures:
    """Take the median of each proxy's turns; `ratio` is what `ours` does over what each of the others does."""
    names = list(dict.fromkeys(one.name for one in rounds))
    saturated = [one for one in rounds if one.added_ms is None]
    rates = {
        name: statistics.median(one.per_cpu_second for one in saturated if one.name == name) for name in names
    }
    return Figures(
        rates,
        {name: rates[ours] / rate for name, rate in rates.items() if name != ours},
        {name: statistics.median(added) for name, added in _added(rounds).items()},
        {name: sum(one.errors for one in rounds if one.name == name) for name in names},
    )


def _added(rounds: Sequence[Round]) -> dict[str, list[float]]:
    added: dict[str, list[float]] = {}
    for one in rounds:
        if one.added_ms is not None:
            added.setdefault(one.name, []).append(one.added_ms)
    return added


def table(pods: int, found: Figures) -> list[str]:
    """The figures as a table in Markdown."""
    lines = [
        f"| proxy, {pods} pods | requests a CPU second | ours over it | added latency, P50 |",
        "| --- | --- | --- | --- |",
    ]
    for name, rate in sorted(found.requests_per_cpu_second.items(), key=lambda item: -item[1]):
        ratio = f"{found.ratio[name]:.2f}" if name in found.ratio else "1"
        added = found.added_latency_ms.get(name)
        latency = "not measured" if added is None else f"{added:.2f} ms"
        lines.append(f"| {name} | {rate:,.0f} | {ratio} | {latency} |")
    return lines


def document(
    by_pods: dict[int, Figures], rounds: dict[int, list[Round]], skipped: Sequence[str], machine: dict[str, object]
) -> dict[str, object]:
    """One object: the fewest pods' figures at the top, those of the others under `with_<n>_pods`."""
    fewest, *others = sorted(by_pods)
    result: dict[str, object] = {"pods": fewest, **by_pods[fewest].as_json()}
    for pods in others:
        result[f"with_{pods}_pods"] = by_pods[pods].as_json()
    result["skipped"] = list(skipped)
    result["machine"] = machine
    result["rounds"] = {str(pods): [asdict(one) for one in turns] for pods, turns in rounds.items()}
    return result
