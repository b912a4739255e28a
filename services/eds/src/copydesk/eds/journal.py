"""What discovery writes to its log when the published truth changes, or is held back."""

from __future__ import annotations

from collections.abc import Iterable

from copydesk.common.messages import Endpoint
from copydesk.common.telemetry import get_logger
from copydesk.eds.discovery import Verdict

# A log line names this many endpoints at most; the counts are whole.
NAMED = 20

_log = get_logger(__name__)


def tell(verdict: Verdict, *, hold_limit_ms: int) -> None:
    """Write a line for a loss held back, one for suspects cleared, and one for a change of endpoints."""
    if verdict.newly_held:
        _log.warning(
            "loss_held_back",
            model=verdict.model,
            held=len(verdict.held),
            listed=len(verdict.after),
            limit_ms=hold_limit_ms,
            endpoints=_ids(verdict.newly_held),
        )
    for reason, endpoints in _cleared(verdict).items():
        if endpoints:
            _log.warning("suspects_cleared", model=verdict.model, reason=reason, endpoints=_ids(endpoints))
    if verdict.before != verdict.after:
        _log.info("endpoints_changed", model=verdict.model, listed=len(verdict.after), **_difference(verdict))


def _cleared(verdict: Verdict) -> dict[str, list[Endpoint]]:
    listed = {endpoint.id for endpoint in verdict.after}
    still_held = {endpoint.id for endpoint in verdict.held}
    reasons: dict[str, list[Endpoint]] = {"returned": [], "proven_gone": [], "limit_passed_or_replaced": []}
    for endpoint in verdict.held_before:
        if endpoint.id in still_held:
            continue
        if endpoint.id in listed:
            reasons["returned"].append(endpoint)
        elif endpoint in verdict.proven:
            reasons["proven_gone"].append(endpoint)
        else:
            reasons["limit_passed_or_replaced"].append(endpoint)
    return reasons


def _difference(verdict: Verdict) -> dict[str, list[str]]:
    before = {endpoint.id: endpoint for endpoint in verdict.before}
    after = {endpoint.id: endpoint for endpoint in verdict.after}
    altered = (endpoint for pod, endpoint in after.items() if before.get(pod, endpoint) != endpoint)
    return {
        "joined": sorted(after.keys() - before.keys())[:NAMED],
        "left": sorted(before.keys() - after.keys())[:NAMED],
        "altered": [f"{endpoint.id} {endpoint.state.value}" for endpoint in altered][:NAMED],
    }


def _ids(endpoints: Iterable[Endpoint]) -> list[str]:
    return [endpoint.id for endpoint in endpoints][:NAMED]
