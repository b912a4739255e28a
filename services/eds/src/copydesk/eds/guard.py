"""The guard against losing a fleet to a mistake: a sudden mass loss is held back until it is proven.

An empty list, or more than half of the endpoints lost at once, is more often a fault of discovery than of the
fleet (envoyproxy/envoy#13072), so those endpoints stay listed as suspects until a probe finds nobody at their
address, or the limit is over. A pod that said it was draining has announced its end and is let go. "At once" means
within `window`: pods that fall silent together expire within some hundred milliseconds, and must not slip out in
small slices.

That a ready pod is called unready by somebody else counts as its loss, for it gets no more work: a control plane
that has lost sight of the nodes calls all pods unready at the same moment. A pod's own word is believed.

Times are readings of the silence clock, in seconds: while nothing can be heard, no limit runs out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from copydesk.common.messages import Endpoint, EndpointState
from copydesk.eds.roster import Listing


@dataclass(frozen=True, slots=True)
class Limits:
    """How long losses count as one (`window`) and how long one is held back at most (`hold`), in seconds."""

    window: float
    hold: float


@dataclass(frozen=True, slots=True)
class Guard:
    """What may be published of one model (`released`), and why it is not simply what is desired.

    `held` maps the id of a suspect to the time since when it is one; `gone` are suspects that a probe did not
    find, or not ready; `losses` maps the id of an endpoint that was lost unannounced to the time when it was let
    go.
    """

    released: Listing = ()
    held: Mapping[str, float] = field(default_factory=dict)
    gone: frozenset[Endpoint] = frozenset()
    losses: Mapping[str, float] = field(default_factory=dict)

    @property
    def suspects(self) -> Listing:
        """The endpoints whose loss waits for proof, as they are released."""
        return () if not self.held else tuple(endpoint for endpoint in self.released if endpoint.id in self.held)


def confirm_gone(guard: Guard, endpoint: Endpoint) -> Guard:
    """Note that a probe found nobody at `endpoint`; without effect if it is no suspect any more."""
    if endpoint not in guard.suspects:
        return guard
    return replace(guard, gone=guard.gone | {endpoint})


def rule(
    guard: Guard, desired: Listing, now: float, limits: Limits, own_word: Collection[str] = frozenset()
) -> Guard:
    """Decide what of the way from `guard.released` to `desired` may be published at `now`.

    `own_word` are the ids of the endpoints of which `desired` has what they said of themselves.
    """
    by_id = {endpoint.id: endpoint for endpoint in desired}
    lost = _unannounced(guard.released, by_id, own_word)
    losses = {
        pod: at
        for pod, at in guard.losses.items()
        if now - at < limits.window and not _is_back(by_id.get(pod), own_word)
    }
    is_mass = _is_mass_loss(guard.released, lost, desired, earlier=len(losses))
    suspects = lost if is_mass else tuple(endpoint for endpoint in lost if endpoint.id in guard.held)
    held = _unproven(guard, suspects, now, limits)
    losses |= {endpoint.id: now for endpoint in lost if endpoint.id not in held}
    if not held:
        return Guard(desired, losses=losses)
    kept = by_id | {endpoint.id: endpoint for endpoint in lost if endpoint.id in held}
    return Guard(tuple(kept[pod] for pod in sorted(kept)), held, losses=losses)


def _unproven(guard: Guard, suspects: Listing, now: float, limits: Limits) -> dict[str, float]:
    """Return since when `suspects` are held back, without those that a probe missed or whose time is over."""
    since = {endpoint.id: guard.held.get(endpoint.id, now) for endpoint in suspects if endpoint not in guard.gone}
    return {pod: at for pod, at in since.items() if now - at < limits.hold}


def _unannounced(released: Listing, by_id: Mapping[str, Endpoint], own_word: Collection[str]) -> Listing:
    """Return the endpoints of `released` that are lost without having said that they drain."""
    missing = [endpoint for endpoint in released if endpoint.id not in by_id]
    # Whoever has the address of a missing endpoint now is its successor, and a probe would find it alive.
    taken = {(endpoint.host, endpoint.port) for endpoint in by_id.values()} if missing else set()
    lost = {
        endpoint.id
        for endpoint in missing
        if (endpoint.host, endpoint.port) not in taken and endpoint.state is not EndpointState.DRAINING
    }
    return tuple(
        endpoint
        for endpoint in released
        if endpoint.id in lost or _is_demoted(endpoint, by_id.get(endpoint.id), own_word)
    )


def _is_demoted(before: Endpoint, after: Endpoint | None, own_word: Collection[str]) -> bool:
    return (
        after is not None
        and before.state is EndpointState.READY
        and after.state is EndpointState.WARMING
        and after.id not in own_word
        and (before.host, before.port, before.started_at) == (after.host, after.port, after.started_at)
    )


def _is_back(endpoint: Endpoint | None, own_word: Collection[str]) -> bool:
    return endpoint is not None and (endpoint.state is not EndpointState.WARMING or endpoint.id in own_word)


def _is_mass_loss(released: Listing, lost: Listing, desired: Listing, earlier: int) -> bool:
    if not lost:
        return False
    staying = sum(endpoint.state is not EndpointState.DRAINING for endpoint in released)
    ready = sum(endpoint.state is EndpointState.READY for endpoint in released)
    ready_lost = sum(endpoint.state is EndpointState.READY for endpoint in lost)
    return (
        not desired
        or _is_most(len(lost) + earlier, staying + earlier)
        or (ready_lost > 0 and _is_most(ready_lost + earlier, ready + earlier))
    )


def _is_most(part: int, whole: int) -> bool:
    return 2 * part > whole
