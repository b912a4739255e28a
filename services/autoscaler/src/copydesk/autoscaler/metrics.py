"""The metrics of the autoscaler, in Prometheus' naming."""

from __future__ import annotations

import math
from collections.abc import Callable

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from copydesk.autoscaler.decision import Decision, Rule
from copydesk.autoscaler.dropped import Dropped

START_BUCKETS_S = (1, 2, 5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300, 600)


class Metrics:
    """Counts and gauges of one autoscaler, on `registry`."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"copydesk_autoscaler_{name}", text, labels, registry=registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"copydesk_autoscaler_{name}", text, labels, registry=registry)

        self._desired = gauge("desired_replicas", "Pods that there shall be.", "model", "policy")
        self._asked = gauge(
            "requested_replicas", "Pods that were asked for when it was decided.", "model", "policy"
        )
        self._ready = gauge("ready_replicas", "Pods that are seen to work.", "model", "policy")
        self._pending = gauge("pending_replicas", "Pods that are waited for.", "model", "policy")
        self._stuck = gauge(
            "stuck_replicas", "Pods that do not become ready, and are not waited for.", "model", "policy"
        )
        self._concurrency = gauge("concurrency_requests", "Requests at pods and before them.", "model", "policy")
        self._demand = gauge("demand_pods", "Demand, in pods' worth of work.", "model", "policy")
        self._target = gauge("target_concurrency_requests", "Requests that a pod shall have.", "model", "policy")
        self._share = gauge(
            "target_share_ratio", "Part of the certified rate that a pod shall do.", "model", "policy"
        )
        self._refinement = gauge("refinement_ratio", "Factor of the slow loop on the target.", "model", "policy")
        self._error = gauge("forecast_error_ratio", "WAPE of the forecast; NaN: not known.", "model", "policy")
        self._silent = gauge("silent_gateways", "Gateways that are not heard in time.", "model", "policy")
        self._decisions = counter("decisions_total", "Decisions, by the rule.", "model", "policy", "rule")
        self._moves = counter("moves_total", "Decisions that changed the size.", "model", "policy", "direction")
        self._age = gauge("last_decision_age_seconds", "Time since the last decision of a model.", "model")
        self._assumed = gauge(
            "capacity_assumed", "Whether nobody has measured a pod (1) or somebody has (0).", "model"
        )
        self._mismatch = gauge(
            "certificate_mismatch", "Whether pods run other weights than the certificate is for (1).", "model"
        )
        self._failures = counter("turn_failures_total", "Turns that failed by a fault of the program.", "model")
        self._actuator = counter("actuator_errors_total", "Sizes not read or written.", "model", "call")
        self._fenced = counter("fenced_total", "Orders refused, since a newer leader had given one.", "model")
        self._dropped = counter("messages_dropped_total", "Messages that were dropped.", "kind", "reason")
        self._starts = Histogram(
            "copydesk_autoscaler_pod_start_seconds",
            "Time from the order of a pod to its first work.",
            ("model",),
            buckets=START_BUCKETS_S,
            registry=registry,
        )
        self._leader = gauge("leader", "Whether this autoscaler acts (1) or stands by (0).")
        self._epoch = gauge("epoch", "Epoch of this autoscaler's last term.")
        self._connected = gauge("bus_connected", "Whether NATS is connected (1) or not (0).")
        self._unsent = gauge("unsent_decisions", "Messages that were certainly not sent.")
        self._unlogged = gauge("unlogged_decisions", "Lines that the decision log could not take.")

    def watch(
        self,
        *,
        leader: Callable[[], bool],
        epoch: Callable[[], int],
        connected: Callable[[], bool],
        unsent: Callable[[], int],
        unlogged: Callable[[], int],
    ) -> None:
        """Read what these return whenever the metrics are asked for."""
        self._leader.set_function(lambda: float(leader()))
        self._epoch.set_function(lambda: float(epoch()))
        self._connected.set_function(lambda: float(connected()))
        self._unsent.set_function(lambda: float(unsent()))
        self._unlogged.set_function(lambda: float(unlogged()))

    def watch_model(self, model: str, age: Callable[[], float], *, assumed: bool) -> None:
        """Show a model from the start on."""
        self._age.labels(model).set_function(age)
        self._assumed.labels(model).set(assumed)
        self._mismatch.labels(model).set(0)
        self._failures.labels(model)
        self._starts.labels(model)
        for call in ("size", "resize"):
            self._actuator.labels(model, call)
        for rule in Rule:
            self._decisions.labels(model, "live", rule.value)

    def decided(self, model: str, policy: str, decision: Decision) -> None:
        """Show a decision, and count it."""
        inputs = decision.inputs
        for shown, value in (
            (self._desired, decision.replicas),
            (self._asked, inputs.size),
            (self._ready, inputs.ready),
            (self._pending, inputs.pending),
            (self._stuck, inputs.stuck),
            (self._concurrency, inputs.concurrency),
            (self._demand, inputs.demand),
            (self._target, inputs.target),
            (self._share, inputs.share),
            (self._refinement, inputs.refinement),
            (self._error, math.nan if inputs.forecast_error is None else inputs.forecast_error),
            (self._silent, len(inputs.stale_gateways)),
        ):
            shown.labels(model, policy).set(value)
        self._decisions.labels(model, policy, decision.rule.value).inc()
        if decision.change:
            self._moves.labels(model, policy, "up" if decision.change > 0 else "down").inc()

    def actuator_failed(self, model: str, call: str, *, fenced: bool) -> None:
        """Count an error of the actuator."""
        self._actuator.labels(model, call).inc()
        if fenced:
            self._fenced.labels(model).inc()

    def turn_failed(self, model: str) -> None:
        """Count a turn that failed."""
        self._failures.labels(model).inc()

    def dropped(self, kind: str, reason: Dropped) -> None:
        """Count a message that was dropped."""
        self._dropped.labels(kind, reason.value).inc()

    def started(self, model: str, seconds: float) -> None:
        """Count a pod that works, by how long after its order."""
        self._starts.labels(model).observe(max(0.0, seconds))

    def certificate_fits(self, model: str, *, fits: bool) -> None:
        """Show whether pods run what was certified."""
        self._mismatch.labels(model).set(not fits)
