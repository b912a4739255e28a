"""What the autoscaler answers over HTTP: whether it is alive and ready, its metrics, and its last decisions."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from copydesk.autoscaler.service import Service
from copydesk.common.status_server import Answer, Paths

LONGEST_TURN_S = 30.0
"""A model takes a turn every two seconds, and an actuator that hangs is given up twice in one: this is neither."""


def status_paths(service: Service, registry: CollectorRegistry) -> Paths:
    """Return the paths of `service`.

    It is ready once it decides, standing by as well: else it would hold up a roll-out. And that NATS or the
    actuator is away is no reason to take it out of service.
    """

    def health() -> Answer:
        age = service.turn_age
        return _answer({"alive": age < LONGEST_TURN_S, "turn_age_s": round(age, 3)}, good=age < LONGEST_TURN_S)

    def readiness() -> Answer:
        view = service.view(decisions=False)
        shown = {
            "ready": view.ready,
            "leader": view.leader,
            "epoch": view.epoch,
            "bus_connected": view.bus_connected,
        }
        return _answer(shown, good=view.ready)

    return {
        "/healthz": health,
        "/readyz": readiness,
        "/metrics": lambda: Answer(generate_latest(registry), CONTENT_TYPE_LATEST),
        "/decisions": lambda: Answer(msgspec.json.encode(service.view())),
    }


def _answer(body: Mapping[str, object], *, good: bool) -> Answer:
    return Answer(msgspec.json.encode(body), status=HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE)
