"""What a rollout looks like at one moment: for programs as an object, for people as a table."""

from __future__ import annotations

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from copydesk.cli.rollout.conductor import Conductor
from copydesk.cli.rollout.gathered import Side
from copydesk.cli.rollout.roster import short
from copydesk.common.latency import percentile_ms
from copydesk.common.messages import ComparedTotals


class VersionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One version: what it did since the rollout began. Times in milliseconds, `slow` a share of the answered."""

    digest: str
    pods: int
    requests: int
    failures: int
    refused: int
    p50_ms: float | None
    p99_ms: float | None
    slow: float | None


class RolloutStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The rollout: `event` is `tick`, `stage` when that has changed, `end` at last."""

    event: str
    time: float
    model: str
    rollout: str
    stage: str
    share: float
    why: str
    missing: tuple[str, ...]
    gateways: int
    baseline: VersionStatus
    candidate: VersionStatus
    compared: ComparedTotals
    agreement: float | None
    likeness: float | None


def status_of(conductor: Conductor, event: str, wall: float) -> RolloutStatus:
    """Return how it is."""
    old, new = conductor.gathered.sides()
    compared, evidence = conductor.gathered.compared(), conductor.evidence
    versions = conductor.versions
    pairs = compared.compared
    return RolloutStatus(
        event=event,
        time=wall,
        model=versions.model,
        rollout=conductor.begin.rollout,
        stage=conductor.stage.value,
        share=conductor.share,
        why=conductor.decision.why,
        missing=conductor.decision.missing,
        gateways=evidence.gateways,
        baseline=_version(versions.baseline, evidence.baselines, old, conductor.terms.slo_ms),
        candidate=_version(versions.candidate, evidence.candidates, new, conductor.terms.slo_ms),
        compared=compared,
        agreement=compared.same / pairs if pairs else None,
        likeness=compared.likeness / pairs if pairs else None,
    )


def picture(status: RolloutStatus, slo_ms: float) -> RenderableType:
    """Return the table that is shown while it runs."""
    table = Table(box=None, pad_edge=False)
    for heading in ("", "version", "pods", "answered", "failed", "no room", "P50", "P99", f"> {slo_ms:g} ms"):
        table.add_column(heading, justify="left" if heading in ("", "version") else "right")
    for name, version in (("baseline", status.baseline), ("candidate", status.candidate)):
        table.add_row(
            name,
            short(version.digest),
            str(version.pods),
            str(version.requests),
            str(version.failures),
            str(version.refused),
            _ms(version.p50_ms),
            _ms(version.p99_ms),
            _share(version.slow),
        )
    return Group(Text(headline(status)), table, Text(agreement_line(status)))


def headline(status: RolloutStatus) -> str:
    """Say in a line where it is, and why."""
    where = status.stage.replace("_", " ")
    if status.stage == "share":
        where = f"{status.share:.0%} to the candidate"
    return f"{status.model}: {where}; {status.why}"


def agreement_line(status: RolloutStatus) -> str:
    """Say how the answers compare."""
    found = status.compared
    if status.agreement is None or status.likeness is None:
        return (
            f"no sentence compared yet ({found.dropped} copies dropped, {found.failed + found.timeouts} failed)"
            f"{_nothing_came(status)}"
        )
    sentences = "1 sentence" if found.compared == 1 else f"{found.compared} sentences"
    return (
        f"{sentences} compared: {status.agreement:.1%} the same, likeness {status.likeness:.1%}; "
        f"changed by both {found.both_changed}, by the candidate only {found.only_candidate}, "
        f"by the baseline only {found.only_baseline}; "
        f"{found.failed + found.timeouts} failed, {found.dropped} dropped"
    )


def _nothing_came(status: RolloutStatus) -> str:
    """A rollout learns from requests; where there are none, it waits for ever."""
    asked = status.baseline.requests + status.candidate.requests
    return "" if asked or status.event == "end" else "; no request has come since it began"


def _version(digest: str, pods: int, side: Side, slo_ms: float) -> VersionStatus:
    slow = side.service(slo_ms).slow
    return VersionStatus(
        digest=digest,
        pods=pods,
        requests=side.requests,
        failures=side.failures,
        refused=side.refused,
        p50_ms=percentile_ms(side.counts, 0.5),
        p99_ms=percentile_ms(side.counts, 0.99),
        slow=slow / side.requests if side.requests else None,
    )


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} ms"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
