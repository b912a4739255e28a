"""The guard against losing a fleet to a mistake: a sudden mass loss is held back until it is proven.

An empty list, or more than half of the endpoints lost at once, is more often a fault of discovery than of the
fleet (envoyproxy/envoy#13072), so those endpoints stay listed as suspects until a probe finds nobody at their
address, or the limit is over. A pod that said it was draining has announced its end and is let go. "At once" means
within `window`: pods that fall silent together expire within some hundred milliseconds, and must not slip out in
small slices.

Times are readings of the silence clock, in seconds: while nothing can be heard, no limit runs out.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    find; `losses` maps the id of an endpoint that went unannounced to the time when it was let go.
    """

    released: Listing = ()
    held: Mapping[str, float] = field(default_factory=dict)
    gone: frozenset[Endpoint] = frozenset()
    losses: Mapping[str, float] = field(default_factory=dict)

    @property
    def suspects(self) -> Listing:
        """The endpoints whose end waits for proof."""
        return tuple(endpoint for endpoint in self.released if endpoint.id in self.held)


def confirm_gone(guard: Guard, endpoint: Endpoint) -> Guard:
    """Note that a probe found nobody at `endpoint`; without effect if it is no suspect any more."""
    if endpoint not in guard.suspects:
        return guard
    return replace(guard, gone=guard.gone | {endpoint})


def rule(guard: Guard, desired: Listing, now: float, limits: Limits) -> Guard:
    """Decide what of the way from `guard.released` to `desired` may be published at `now`."""
    present = {endpoint.id for endpoint in desired}
    losses = {pod: at for pod, at in guard.losses.items() if now - at < limits.window and pod not in present}
    lost = _unannounced(guard.released, desired)
    if _is_mass_loss(guard.released, lost, desired, earlier=len(losses)):
        suspects = {endpoint.id: guard.held.get(endpoint.id, now) for endpoint in lost}
    else:
        suspects = {endpoint.id: guard.held[endpoint.id] for endpoint in lost if endpoint.id in guard.held}
    held = {
        endpoint.id: suspects[endpoint.id]
        for endpoint in lost
        if endpoint.id in suspects and endpoint not in guard.gone and now - suspects[endpoint.id] < limits.hold
    }
    kept = [endpoint for endpoint in lost if endpoint.id in held]
    losses |= {endpoint.id: now for endpoint in lost if endpoint.id not in held}
    released = tuple(sorted((*desired, *kept), key=lambda endpoint: endpoint.id))
    return Guard(released, held, losses=losses)


def _unannounced(released: Listing, desired: Listing) -> Listing:
    present = {endpoint.id for endpoint in desired}
    # Whoever has the address of a lost endpoint now is its successor, and a probe would find it alive.
    taken = {(endpoint.host, endpoint.port) for endpoint in desired}
    return tuple(
        endpoint
        for endpoint in released
        if endpoint.id not in present
        and (endpoint.host, endpoint.port) not in taken
        and endpoint.state is not EndpointState.DRAINING
    )


def _is_mass_loss(released: Listing, lost: Listing, desired: Listing, earlier: int) -> bool:
    if not lost:
        return False
    staying = sum(endpoint.state is not EndpointState.DRAINING for endpoint in released)
    return not desired or 2 * (len(lost) + earlier) > staying + earlier
