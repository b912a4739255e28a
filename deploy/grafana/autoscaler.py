"""How many pods there shall be, how many there are, and why."""

from __future__ import annotations

from deploy.grafana.panels import Choice, Dashboard, Kind, Line, Panel, Query, Row, Unit

_LIVE = '{model=~"$model",policy=~"live|dry-run"}'
_MODEL = '{model=~"$model"}'


def _live(metric: str, legend: str) -> Query:
    """The value of the replica that leads, or tells only (dry-run); those that stand by decide for themselves."""
    leads = "and on (instance) copydesk_autoscaler_leader == 1"
    return Query(f"max by (model) (copydesk_autoscaler_{metric}{_LIVE} {leads})", f"{{{{model}}}} {legend}")


_SIZE = Row(
    "Size",
    (
        Panel(
            "Desired and actual",
            "desired: what was decided. asked for: what the cluster had been told before. working: pods that are "
            "seen to work.",
            Unit.NONE,
            (
                _live("desired_replicas", "desired"),
                _live("requested_replicas", "asked for"),
                _live("ready_replicas", "working"),
            ),
        ),
        Panel(
            "On their way",
            "pending: waited for. stuck: not ready after three times the cold start, and not waited for any more.",
            Unit.NONE,
            (_live("pending_replicas", "pending"), _live("stuck_replicas", "stuck")),
        ),
        Panel(
            "Reason",
            "Decisions by the rule that made them.",
            Unit.PER_SECOND,
            (
                Query(
                    f"sum by (rule) (rate(copydesk_autoscaler_decisions_total{_LIVE}[$__rate_interval])) > 0",
                    "{{rule}}",
                ),
            ),
            Kind.STACK,
        ),
    ),
)

_DEMAND = Row(
    "Demand",
    (
        Panel(
            "Work",
            "Demand in pods' worth of work, beside the pods that work. Above them, requests wait.",
            Unit.NONE,
            (_live("demand_pods", "demand"), _live("ready_replicas", "working")),
        ),
        Panel(
            "Requests",
            "At pods and before them.",
            Unit.NONE,
            (_live("concurrency_requests", "requests"),),
        ),
        Panel(
            "Target",
            "Part of the certified rate that a pod shall do, and the slow loop's factor on it.",
            Unit.SHARE,
            (_live("target_share_ratio", "share"), _live("refinement_ratio", "refinement")),
        ),
    ),
)

_STARTS = Row(
    "Starts and moves",
    (
        Panel(
            "Cold starts",
            "From the order of a pod to its first work.",
            Unit.SECONDS,
            tuple(
                Query(
                    f"histogram_quantile({share}, sum by (le, model) "
                    f"(increase(copydesk_autoscaler_pod_start_seconds_bucket{_MODEL}[1h])))",
                    f"{{{{model}}}} {name}",
                )
                for share, name in ((0.5, "P50"), (0.9, "P90"))
            ),
        ),
        Panel(
            "Moves",
            "Changes of the size an hour. Many up and down in turn: the target is wrong, see the decision log.",
            Unit.NONE,
            (
                Query(
                    f"sum by (model, direction) (increase(copydesk_autoscaler_moves_total{_LIVE}[1h]))",
                    "{{model}} {{direction}}",
                ),
            ),
        ),
        Panel(
            "Forecast",
            "Its error over seven days (WAPE); it may raise the size only below 20 %. Nothing: not known yet.",
            Unit.SHARE,
            (_live("forecast_error_ratio", "error"),),
            limit=Line(0.2),
        ),
    ),
)

_HEALTH = Row(
    "Its own health",
    (
        Panel(
            "Leads",
            "Which replica acts, and how old its last decision is.",
            Unit.NONE,
            (
                Query("copydesk_autoscaler_leader", "leads {{instance}}"),
                Query(f"copydesk_autoscaler_last_decision_age_seconds{_MODEL}", "age in s {{instance}} {{model}}"),
            ),
        ),
        Panel(
            "Faults",
            "Sizes not read or written, orders refused for a newer leader, turns that failed, gateways not heard.",
            Unit.NONE,
            (
                Query(
                    f"sum by (call) (increase(copydesk_autoscaler_actuator_errors_total{_MODEL}[5m]))",
                    "not {{call}}d",
                ),
                Query(f"sum(increase(copydesk_autoscaler_turn_failures_total{_MODEL}[5m]))", "turns failed"),
                Query(f"max(copydesk_autoscaler_silent_gateways{_LIVE})", "silent gateways"),
            ),
        ),
        Panel(
            "Capacity of a pod",
            "assumed: nobody has measured one, see docs/capacity.md. mismatch: pods run other weights than the "
            "certificate is for.",
            Unit.YES_NO,
            (
                Query(f"max by (model) (copydesk_autoscaler_capacity_assumed{_MODEL})", "{{model}} assumed"),
                Query(f"max by (model) (copydesk_autoscaler_certificate_mismatch{_MODEL})", "{{model}} mismatch"),
            ),
        ),
    ),
)

DASHBOARD = Dashboard(
    "autoscaler",
    "Copydesk: autoscaler",
    "How many pods there shall be, how many there are, and why.",
    (_SIZE, _DEMAND, _STARTS, _HEALTH),
    (Choice("model", "copydesk_autoscaler_last_decision_age_seconds", "model"),),
)
