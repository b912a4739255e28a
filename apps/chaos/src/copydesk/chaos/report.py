"""What a run was and what came of it, as data."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from copydesk.chaos.census import Course
from copydesk.chaos.growth import Growth
from copydesk.chaos.outcome import Outcome
from copydesk.chaos.striking import Struck
from copydesk.chaos.verdict import Check
from copydesk.loadtest.load_report import LoadReport
from copydesk.loadtest.pulse import STALL_S, Stall


class ChaosReport(msgspec.Struct, frozen=True, kw_only=True):
    """A run: `seconds` of load at `rate` requests a second, of which `interrupted` cut off the rest.

    `struck` is what was broken and when, `stalls` are the moments in which the machine did not run what was due,
    so that they are not taken for the work of a fault, `courses` what each process held meanwhile, `checks` the
    bars. A request is good when it was answered rightly within `deadline_ms`.
    """

    url: str
    model: str
    seed: int
    seconds: float
    rate: float
    deadline_ms: float
    interrupted: bool
    outcome: Outcome
    load: LoadReport
    struck: tuple[Struck, ...]
    growths: tuple[Growth, ...]
    courses: tuple[Course, ...]
    checks: tuple[Check, ...]
    stalls: tuple[Stall, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether every bar was held."""
        return all(check.holds for check in self.checks)


def rows(report: ChaosReport) -> list[tuple[str, str]]:
    """Return the figures with their names, for a table."""
    outcome, latency = report.outcome, report.load.latency_ms
    shown = "none" if latency is None else (
        f"P50 {latency.p50:.0f}  P99 {latency.p99:.0f}  P99.9 {latency.p999:.0f}  max {latency.max:.0f} ms"
    )  # fmt: skip
    done = [one for one in report.struck if not one.left_out]
    return [
        ("run", f"seed {report.seed}, {report.seconds:.0f} s, {report.rate:g} requests/s, {len(done)} faults"),
        ("answered", f"{outcome.good} of {outcome.offered} rightly in {report.deadline_ms:g} ms"),
        ("else", _rest(outcome)),
        ("latency", shown),
        ("longest outage", _outage(outcome)),
        ("generator", f"late by P99 {report.load.late_p99_ms:.1f} ms"),
        ("machine", _stood_still(report)),
        *((f"{'held' if check.holds else 'MISSED'}: {check.name}", check.said) for check in report.checks),
    ]


def _outage(outcome: Outcome) -> str:
    return f"{outcome.outage_s:.2f} s, from second {outcome.outage_at:.1f}" if outcome.outage_s else "none"


def _stood_still(report: ChaosReport) -> str:
    stalls = report.stalls
    if not stalls:
        return f"never stood still for {1000.0 * STALL_S:.0f} ms"
    longest = max(stalls, key=lambda one: one.seconds)
    return (
        f"stood still {len(stalls)} times, {sum(one.seconds for one in stalls):.2f} s in all, longest "
        f"{longest.seconds:.2f} s from second {longest.at:.1f}; "
        f"{report.outcome.amid_stalls} of the requests not answered rightly in time were due or under way then"
    )


def _rest(outcome: Outcome) -> str:
    parts = {
        "late": outcome.late,
        "refused": outcome.refused,
        "wrong": outcome.wrong,
        "unanswered": outcome.unanswered,
        "failed": outcome.failed,
    }
    return ", ".join(f"{count} {name}" for name, count in parts.items() if count) or "nothing"


def left_out(struck: Iterable[Struck]) -> list[Struck]:
    """Return the faults that did not strike."""
    return [one for one in struck if one.left_out]
