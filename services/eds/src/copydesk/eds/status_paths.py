"""What discovery answers over HTTP: whether it is alive, whether it is ready, its metrics, and what it knows."""

from __future__ import annotations

from http import HTTPStatus

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from copydesk.common.status_server import Answer, Paths
from copydesk.eds.service import Service

LONGEST_TURN_S = 10.0
"""A service that has taken no turn for so long, where it takes ten a second, is not alive."""


def status_paths(service: Service, registry: CollectorRegistry) -> Paths:
    """Return the paths of `service`.

    It is ready once it knows enough to publish: standing by, it would otherwise hold up a roll-out; and that NATS
    or its source is away is no reason to take the replica out of service, since it has nothing better.
    """

    def health() -> Answer:
        age = service.turn_age
        return _answer({"alive": age < LONGEST_TURN_S, "turn_age_s": round(age, 3)}, good=age < LONGEST_TURN_S)

    def readiness() -> Answer:
        view = service.observe()
        return _answer(
            {
                "ready": view.settled,
                "leader": view.leader,
                "epoch": view.epoch,
                "bus_connected": view.bus_connected,
                "stale": view.stale,
            },
            good=view.settled,
        )

    return {
        "/healthz": health,
        "/readyz": readiness,
        "/metrics": lambda: Answer(generate_latest(registry), CONTENT_TYPE_LATEST),
        "/endpoints": lambda: Answer(msgspec.json.encode(service.view())),
    }


def _answer(body: dict[str, object], *, good: bool) -> Answer:
    return Answer(msgspec.json.encode(body), status=HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE)
