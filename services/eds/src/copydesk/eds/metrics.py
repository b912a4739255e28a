"""The metrics of discovery, in Prometheus' naming."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge

from copydesk.common.messages import EndpointState
from copydesk.eds.discovery import Verdict
from copydesk.eds.probe import Sighting
from copydesk.eds.roster import Dropped
from copydesk.eds.view import ReplicaView


class Metrics:
    """Counts and gauges of one discovery process, on `registry`."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._endpoints = Gauge(
            "copydesk_eds_endpoints", "Endpoints as published.", ["model", "state"], registry=registry
        )
        self._held = Gauge(
            "copydesk_eds_held_endpoints", "Endpoints whose loss is held back.", ["model"], registry=registry
        )
        self._held_changes = Counter(
            "copydesk_eds_held_changes_total", "Mass losses held back.", ["model"], registry=registry
        )
        self._publishes = Counter(
            "copydesk_eds_publishes_total", "Snapshots published.", ["model"], registry=registry
        )
        self._received = Counter(
            "copydesk_eds_reports_received_total", "Load reports received.", registry=registry
        )
        self._dropped = Counter(
            "copydesk_eds_reports_dropped_total", "Load reports that were dropped.", ["reason"], registry=registry
        )
        self._static_errors = Counter(
            "copydesk_eds_static_file_errors_total", "Reads that found the static file broken.", registry=registry
        )
        self._probes = Counter(
            "copydesk_eds_probes_total", "Probes of suspects, by what they found.", ["found"], registry=registry
        )
        self._relists = Counter(
            "copydesk_eds_relists_total",
            "Lists that the source was asked for anew.",
            ["resource", "reason"],
            registry=registry,
        )
        self._source_failures = Counter(
            "copydesk_eds_source_failures_total",
            "Lists and watches of the source that failed.",
            ["resource", "reason"],
            registry=registry,
        )
        self._event_age = Gauge(
            "copydesk_eds_last_event_age_seconds", "Time since a source last said anything.", registry=registry
        )
        self._connected = Gauge(
            "copydesk_eds_bus_connected", "Whether NATS is connected (1) or not (0).", registry=registry
        )
        self._unsent = Gauge(
            "copydesk_eds_unsent_snapshots",
            "Snapshots that were certainly not sent: too large, or NATS was slow or lost.",
            registry=registry,
        )
        self._stale = Gauge(
            "copydesk_eds_source_stale", "Whether the source cannot be heard (1) or can (0).", registry=registry
        )
        self._leader = Gauge(
            "copydesk_eds_leader", "Whether this replica publishes (1) or stands by (0).", registry=registry
        )
        self._epoch = Gauge("copydesk_eds_epoch", "Epoch of this replica's last term.", registry=registry)
        for reason in Dropped:
            self._dropped.labels(reason.value)
        for found in Sighting:
            self._probes.labels(found.value)

    def watch(self, observe: Callable[[], ReplicaView], *, dropped: Callable[[], int]) -> None:
        """Read what these return whenever the metrics are asked for."""
        self._unsent.set_function(lambda: float(dropped()))
        self._event_age.set_function(lambda: observe().event_age_s)
        self._connected.set_function(lambda: float(observe().bus_connected))
        self._stale.set_function(lambda: float(observe().stale))
        self._leader.set_function(lambda: float(observe().leader))
        self._epoch.set_function(lambda: float(observe().epoch))

    def report_received(self, dropped: Dropped | None) -> None:
        """Count a load report, and why it was dropped if it was."""
        self._received.inc()
        if dropped is not None:
            self._dropped.labels(dropped.value).inc()

    def probed(self, found: Sighting) -> None:
        """Count a probe."""
        self._probes.labels(found.value).inc()

    def relisted(self, resource: str, reason: str) -> None:
        """Count a list of `resource` that a source has asked for anew, and why."""
        self._relists.labels(resource, reason).inc()

    def source_failed(self, resource: str, reason: str) -> None:
        """Count that `resource` could not be listed or watched, and why."""
        self._source_failures.labels(resource, reason).inc()

    def static_file_broken(self) -> None:
        """Count a read of the static file that failed."""
        self._static_errors.inc()

    def published(self, model: str) -> None:
        """Count a snapshot."""
        self._publishes.labels(model).inc()

    def reviewed(self, verdict: Verdict) -> None:
        """Show what may be published of a model, and count a loss that is held back from now on."""
        states = Tally(endpoint.state for endpoint in verdict.after)
        for state in EndpointState:
            self._endpoints.labels(verdict.model, state.value).set(states[state])
        self._held.labels(verdict.model).set(len(verdict.held))
        self._held_changes.labels(verdict.model).inc(bool(verdict.newly_held))
