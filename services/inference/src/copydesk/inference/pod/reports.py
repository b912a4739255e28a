"""Load reports: what the pod says of itself to the rest of the fleet."""

from __future__ import annotations

import re
import socket
import time
from dataclasses import dataclass

from copydesk.common.bus import Bus
from copydesk.common.messages import EndpointState, LoadReport, load_subject
from copydesk.common.rpc.frames import Load


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """What does not change during a run of the pod; `started_at` is in Unix seconds."""

    model: str
    pod: str
    zone: str
    host: str
    port: int
    started_at: float


@dataclass(frozen=True, slots=True)
class PodStatus:
    """What does change; `digest` is empty until the engine has told it."""

    state: EndpointState
    load: Load
    digest: str


def pod_name(configured: str, port: int) -> str:
    """Return the configured name, or one made of the machine's name and the port."""
    if configured:
        return configured
    machine = re.sub(r"[^A-Za-z0-9_-]+", "-", socket.gethostname())[:48].strip("-")
    return f"{machine or 'pod'}-{port}"


def load_report(identity: PodIdentity, status: PodStatus, *, sequence: int, sent_at: float) -> LoadReport:
    """Put identity and status into a report."""
    return LoadReport(
        model=identity.model,
        pod=identity.pod,
        sequence=sequence,
        sent_at=sent_at,
        started_at=identity.started_at,
        host=identity.host,
        port=identity.port,
        state=status.state,
        running=status.load.running,
        queued=status.load.queued,
        capacity=status.load.capacity,
        step_ms=status.load.step_ms,
        digest=status.digest,
        zone=identity.zone,
    )


class Reporter:
    """Numbers the reports of one run and hands them to the bus, which drops them while NATS is away."""

    def __init__(self, bus: Bus, identity: PodIdentity) -> None:
        self._bus = bus
        self._identity = identity
        self._subject = load_subject(identity.model, identity.pod)
        self._sequence = 0

    def publish(self, status: PodStatus) -> None:
        """Publish one report."""
        self._sequence += 1
        self._bus.publish(
            self._subject, load_report(self._identity, status, sequence=self._sequence, sent_at=time.time())
        )
