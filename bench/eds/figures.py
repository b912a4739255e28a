"""From what was heard to figures, to a table, to JSON: no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

CPU_BAR = 0.5
MEMORY_BAR_MB = 150.0
PUBLISH_BAR_MS = 100.0


@dataclass(frozen=True, slots=True)
class Spread:
    """Milliseconds: the median, the 99th percentile and the most."""

    p50: float
    p99: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of at least one value."""
        ordered = sorted(values)
        last = len(ordered) - 1
        return cls(ordered[round(0.5 * last)], ordered[round(0.99 * last)], ordered[-1])

    def rounded(self) -> Spread:
        """To what they are worth."""
        return Spread(round(self.p50, 2), round(self.p99, 2), round(self.most, 2))


@dataclass(frozen=True, slots=True)
class Workload:
    """What the cluster is, and what it does; `warm_up` are seconds that do not count."""

    services: int
    endpoints: int
    rate: float
    seconds: float
    warm_up: float


@dataclass(frozen=True, slots=True)
class Case:
    """What was found with one set-up.

    `cpu_cores` and `memory_mb` are those of the discovery process. `publish` is from a snapshot's sending to the
    end of its judgement by a gateway's code, `change` from a change in the cluster to the same. `unseen` are pods
    that came by a change and were never heard of: those that another one replaced within the debounce.
    """

    name: str
    cpu_cores: float
    memory_mb: float
    publish: Spread
    change: Spread
    snapshots_per_second: float
    changes: int
    unseen: int
    latest_change_ms: float
    xds_answers: int

    def as_json(self) -> dict[str, object]:
        """The figures and how they stand to the bars."""
        return {
            **asdict(self),
            "publish": asdict(self.publish.rounded()),
            "change": asdict(self.change.rounded()),
            "cpu_cores": round(self.cpu_cores, 3),
            "memory_mb": round(self.memory_mb, 1),
            "snapshots_per_second": round(self.snapshots_per_second, 1),
            "latest_change_ms": round(self.latest_change_ms, 1),
            "holds": {
                "cpu": self.cpu_cores < CPU_BAR,
                "memory": self.memory_mb < MEMORY_BAR_MB,
                "publish_p99": self.publish.p99 < PUBLISH_BAR_MS,
            },
        }


def document(workload: Workload, cases: Sequence[Case], machine: dict[str, object]) -> dict[str, object]:
    """One object; the bars stand beside what was found."""
    bars = {"cpu_cores": CPU_BAR, "memory_mb": MEMORY_BAR_MB, "publish_p99_ms": PUBLISH_BAR_MS}
    return {
        "workload": asdict(workload),
        "bars": bars,
        "cases": [case.as_json() for case in cases],
        "machine": machine,
    }


def table(workload: Workload, cases: Sequence[Case]) -> list[str]:
    """The figures as a table in Markdown."""
    lines = [
        f"{workload.endpoints:,} endpoints of {workload.services} models, {workload.rate:g} changes a second,"
        f" {workload.seconds:g} s",
        "",
        "| discovery | CPU, cores | memory, MB | snapshots/s | publish to gateway, P50 / P99 ms "
        "| change to gateway, P50 / P99 ms |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for case in cases:
        lines.append(
            f"| {case.name} | {case.cpu_cores:.2f} | {case.memory_mb:.0f} | {case.snapshots_per_second:.0f} "
            f"| {case.publish.p50:.1f} / {case.publish.p99:.1f} | {case.change.p50:.0f} / {case.change.p99:.0f} |"
        )
    bars = f"| bar | {CPU_BAR:g} | {MEMORY_BAR_MB:g} | - | - / {PUBLISH_BAR_MS:g} | - |"
    return [*lines, bars]
