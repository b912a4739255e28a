"""The page to open first: whether people are served, and which part is in the way if not."""

from __future__ import annotations

from deploy.grafana.panels import Dashboard, Kind, Line, Panel, Query, Row, Unit

_DECIDING = '{policy=~"live|dry-run"}'
"""Decisions that hold, and those of an autoscaler that only tells them; not those of a candidate in the shadow."""

_OBJECTIVES = Row(
    "Objectives",
    (
        Panel(
            "Availability, 30 minutes",
            "Share of requests for work that were answered. The objective is 99.99 %.",
            Unit.SHARE,
            (Query("1 - copydesk:requests_failed:ratio30m", "answered"),),
            Kind.STAT,
        ),
        Panel(
            "Within a second, 30 minutes",
            "Share of corrections that took no longer than a second. The objective is 99 %.",
            Unit.SHARE,
            (Query("1 - copydesk:requests_slow:ratio30m", "within 1 s"),),
            Kind.STAT,
        ),
        Panel(
            "Burn rate, availability",
            "How many times faster than allowed the month's budget of failed requests is spent. Above 14.4 for "
            "an hour, somebody is woken up.",
            Unit.NONE,
            (
                Query("copydesk:requests_failed:ratio5m / 0.0001", "5 min"),
                Query("copydesk:requests_failed:ratio1h / 0.0001", "1 h"),
            ),
            Kind.STAT,
            Line(14.4),
        ),
        Panel(
            "Burn rate, latency",
            "The same for the month's budget of answers that take longer than a second.",
            Unit.NONE,
            (
                Query("copydesk:requests_slow:ratio5m / 0.01", "5 min"),
                Query("copydesk:requests_slow:ratio1h / 0.01", "1 h"),
            ),
            Kind.STAT,
            Line(14.4),
        ),
    ),
)

_REQUESTS = Row(
    "Requests",
    (
        Panel(
            "Requests",
            "Requests for work a second: answered, and failed by the service's own fault.",
            Unit.PER_SECOND,
            (
                Query("copydesk:requests_answered:rate5m", "answered"),
                Query("copydesk:requests_failed:rate5m", "failed"),
            ),
        ),
        Panel(
            "Latency",
            "Of corrections that were answered, from the request's head to its answer.",
            Unit.SECONDS,
            (
                Query("histogram_quantile(0.5, copydesk:request_seconds_bucket:rate5m)", "P50"),
                Query("histogram_quantile(0.99, copydesk:request_seconds_bucket:rate5m)", "P99"),
            ),
            limit=Line(1.0),
        ),
        Panel(
            "Errors of the service",
            "By code. overloaded and no_endpoints: too few pods. pod_unavailable and inference_failed: pods "
            "break. deadline_exceeded: too slow. keys_unavailable and limits_unavailable: Redis is away. "
            "internal_error: see the gateways' logs.",
            Unit.PER_SECOND,
            (
                Query(
                    'sum by (kind) (rate(copydesk_gateway_errors_total{side="service"}[$__rate_interval])) > 0',
                    "{{kind}}",
                ),
            ),
            Kind.STACK,
        ),
    ),
)

_PODS = Row(
    "Pods",
    (
        Panel(
            "Occupancy",
            "Requests that run in each pod, as a share of those that it can run at once. Pods should look alike: "
            "one that stands out is slow, new, or in another zone.",
            Unit.SHARE,
            (Query("copydesk_inference_running / copydesk_inference_capacity", "{{instance}}"),),
        ),
        Panel(
            "Choice",
            "Requests a second that gateways gave each pod. The choice is by load and latency, so that a slow "
            "pod gets less.",
            Unit.PER_SECOND,
            (
                Query(
                    "sum by (instance) (rate(copydesk_inference_requests_total[$__rate_interval]))", "{{instance}}"
                ),
            ),
        ),
        Panel(
            "Desired and working",
            "How many pods the autoscaler wants, how many work, and how many are waited for.",
            Unit.NONE,
            (
                Query(
                    'max by (model) (copydesk_autoscaler_desired_replicas{policy=~"live|dry-run"})',
                    "{{model}} desired",
                ),
                Query(
                    'max by (model) (copydesk_autoscaler_ready_replicas{policy=~"live|dry-run"})',
                    "{{model}} working",
                ),
                Query(
                    'max by (model) (copydesk_autoscaler_pending_replicas{policy=~"live|dry-run"})',
                    "{{model}} pending",
                ),
            ),
        ),
    ),
)

_MEMBERSHIP = Row(
    "Who knows whom",
    (
        Panel(
            "Age of the membership",
            "Time since each gateway heard of discovery. Two seconds is normal; gateways go on without it, and "
            "find no new pods.",
            Unit.SECONDS,
            (Query("copydesk_gateway_membership_age_seconds", "{{instance}}"),),
            limit=Line(60.0),
        ),
        Panel(
            "Leaders",
            "Replicas that publish (discovery) and decide (autoscaler): one each.",
            Unit.NONE,
            (
                Query("sum(copydesk_eds_leader)", "discovery"),
                Query("sum(copydesk_autoscaler_leader)", "autoscaler"),
            ),
        ),
        Panel(
            "Connected to NATS",
            "Without it the fleet serves on as it is: nobody is found, nothing is scaled.",
            Unit.YES_NO,
            (
                Query("copydesk_gateway_bus_connected", "gateway {{instance}}"),
                Query("copydesk_eds_bus_connected", "discovery {{instance}}"),
                Query("copydesk_autoscaler_bus_connected", "autoscaler {{instance}}"),
            ),
        ),
    ),
)

_SCRAPED = Row(
    "Seen by Prometheus",
    (
        Panel(
            "Targets that answer",
            "Of each job, how many of its targets Prometheus could read.",
            Unit.NONE,
            (Query("sum by (job) (up)", "{{job}}"),),
        ),
        Panel(
            "Endpoints published",
            "By state, as discovery has them.",
            Unit.NONE,
            (Query("max by (model, state) (copydesk_eds_endpoints)", "{{model}} {{state}}"),),
            Kind.STACK,
        ),
        Panel(
            "Losses held back",
            "Pods that seem to be lost all at once, and that discovery keeps until that is certain.",
            Unit.NONE,
            (Query("max by (model) (copydesk_eds_held_endpoints)", "{{model}}"),),
        ),
        Panel(
            "Certificates",
            "Time until the first one of each link ends; nothing where there is no TLS.",
            Unit.SECONDS,
            (
                Query(
                    'min by (job, link) ({__name__=~"copydesk_(gateway|eds|autoscaler|inference|imagefetcher)'
                    '_tls_certificate_expiry_timestamp_seconds"}) - time()',
                    "{{job}} {{link}}",
                ),
            ),
        ),
    ),
)

DASHBOARD = Dashboard(
    "fleet",
    "Copydesk: fleet",
    "Whether people are served, and which part is in the way if not.",
    (_OBJECTIVES, _REQUESTS, _PODS, _MEMBERSHIP, _SCRAPED),
)
