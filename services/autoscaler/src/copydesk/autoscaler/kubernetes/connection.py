"""An actuator and a leadership that belong together: by one API server, and one epoch."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from copydesk.autoscaler.kubernetes.actuator import KubernetesActuator
from copydesk.autoscaler.kubernetes.target import read_target
from copydesk.kube.api import Api, find_config
from copydesk.kube.elector import Candidacy, LeaseLeadership


@dataclass(frozen=True, slots=True)
class Place:
    """Where to scale and to stand: `config` as for `find_config`; what `targets` says of each model, by its name.

    `namespace` is that of targets that name none ("": the one that this process runs in, where the Lease is too).
    """

    config: Path | None
    targets: Mapping[str, str]
    lease: str
    lease_seconds: float
    namespace: str = ""


def connect(place: Place) -> tuple[KubernetesActuator, LeaseLeadership]:
    """Make both; nothing is asked of the server yet. Each is closed by itself.

    Raises:
        KubernetesConfigError: Nothing usable says how to reach the API server.
        TargetError: What to scale for a model is not named.
    """
    config = find_config(place.config)
    asking = Api(config)
    namespace = place.namespace or asking.namespace
    targets = {model: read_target(model, text, namespace) for model, text in place.targets.items()}
    # Another run is another candidate: it must not take a term of its predecessor's for its own.
    identity = f"{socket.gethostname()}-{secrets.token_hex(4)}"
    standing = Api(config)
    leadership = LeaseLeadership(standing, Candidacy(asking.namespace, place.lease, identity, place.lease_seconds))
    return KubernetesActuator(asking, targets, leadership.surpass), leadership
