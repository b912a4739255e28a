"""The parts of a fleet that show certificates: by which names, and on which side of a connection."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Component:
    """A part; `names` are the DNS names in its certificate, `serves` and `connects` what it may be used for."""

    folder: str
    names: tuple[str, ...]
    serves: bool = False
    connects: bool = True


COMPONENTS = (
    Component("gateway", ("copydesk-gateway",)),
    Component("inference", ("copydesk-inference",), serves=True),
    Component("eds", ("copydesk-eds",)),
    Component("autoscaler", ("copydesk-autoscaler",)),
    Component("image-fetcher", ("copydesk-image-fetcher",)),
    # Servers of a cluster connect to one another by address: in Kubernetes, those of the StatefulSet's pods.
    Component(
        "nats",
        ("copydesk-nats", "*.copydesk-nats", "*.copydesk-nats.copydesk.svc", "nats", "localhost"),
        serves=True,
    ),
)
