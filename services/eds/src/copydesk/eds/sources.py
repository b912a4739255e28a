"""Which source, and which kind of election, the settings ask for."""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Callable

from copydesk.common.bus import Bus
from copydesk.eds.heartbeat import HeartbeatSource
from copydesk.eds.leadership import Alone, Leadership
from copydesk.eds.metrics import Metrics
from copydesk.eds.settings import EdsSettings, SourceKind
from copydesk.eds.source import Source
from copydesk.eds.static import StaticSource


def make_source(settings: EdsSettings, bus: Bus, metrics: Metrics) -> Source:
    """Make the source that the settings ask for; only the heartbeat source listens to `bus`.

    Raises `KubernetesConfigError` if that is Kubernetes, and nothing says how to reach it.
    """
    if settings.source is SourceKind.KUBERNETES:
        return _kubernetes(settings, metrics)
    if settings.source is SourceKind.HEARTBEAT or settings.static_file is None:
        return HeartbeatSource(bus)
    return StaticSource(
        settings.static_file, poll=settings.static_poll_ms / 1000, on_error=metrics.static_file_broken
    )


def make_leadership(settings: EdsSettings, *, wall: Callable[[], float] = time.time) -> Leadership:
    """Make the kind of election that the settings ask for.

    Raises `KubernetesConfigError` if it needs Kubernetes, and nothing says how to reach it.
    """
    if not settings.needs_lease:
        return Alone(int(wall() * 1000))
    from copydesk.kube.api import Api, find_config
    from copydesk.kube.elector import Candidacy, LeaseLeadership

    api = Api(find_config(settings.kube_config))
    # Another run is another candidate: it must not take a term of its predecessor's for its own.
    identity = f"{socket.gethostname()}-{secrets.token_hex(4)}"
    return LeaseLeadership(api, Candidacy(api.namespace, settings.lease_name, identity, settings.lease_seconds))


def _kubernetes(settings: EdsSettings, metrics: Metrics) -> Source:
    # Only here, as most of the memory of a small discovery process would be Kubernetes' client.
    from copydesk.eds.kubernetes.follower import Pace
    from copydesk.eds.kubernetes.source import KubernetesSource, Observer, Selection
    from copydesk.kube.api import Api, find_config

    api = Api(find_config(settings.kube_config))
    return KubernetesSource(
        api,
        Selection(settings.kube_namespace or api.namespace, settings.kube_selector, settings.kube_port),
        Pace(silence=settings.kube_silence_ms / 1000, page=settings.kube_page),
        Observer(relisted=metrics.relisted, failed=metrics.source_failed),
    )
