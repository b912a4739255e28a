"""An actuator and a leadership that belong together: by one API server, and one epoch."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from copydesk.autoscaler.actuator import Actuator, Leadership
from copydesk.autoscaler.kubernetes.actuator import KubernetesActuator
from copydesk.autoscaler.kubernetes.target import read_target
from copydesk.kube.api import Api, find_config
from copydesk.kube.elector import Candidacy, LeaseLeadership


@dataclass(frozen=True, slots=True)
class Place:
    """Where to stand: `config` as for `find_config`, the Lease by its name and for how long it holds unrenewed.

    `namespace` is that of the Lease, and of workloads that name none ("": the one that this process runs in).
    """

    config: Path | None
    lease: str
    lease_seconds: float
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Named:
    """What a configuration says of the workload of a model, as deployments/NAME; empty is what is usual."""

    workload: str = ""
    namespace: str = ""


def connect(place: Place, models: Mapping[str, Named]) -> tuple[Actuator, Leadership]:
    """Make both; nothing is asked of the server yet. Each is closed by itself.

    Raises:
        KubernetesConfigError: Nothing usable says how to reach the API server.
        TargetError: What to scale for a model is not named.
    """
    config = find_config(place.config)
    home = place.namespace or config.namespace
    targets = {model: read_target(model, one.workload, one.namespace or home) for model, one in models.items()}
    # Another run is another candidate: it must not take a term of its predecessor's for its own.
    identity = f"{socket.gethostname()}-{secrets.token_hex(4)}"
    leadership = LeaseLeadership(Api(config), Candidacy(home, place.lease, identity, place.lease_seconds))
    return KubernetesActuator(Api(config), targets, leadership.surpass), leadership
