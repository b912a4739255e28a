"""What gateways answer, refuse, retry and know."""

from __future__ import annotations

from deploy.grafana.panels import Choice, Dashboard, Kind, Line, Panel, Query, Row, Unit

_OF = 'instance=~"$instance"'
_WINDOW = "[$__rate_interval]"


def _rate(metric: str, by: str, more: str = "") -> str:
    return f"sum by ({by}) (rate(copydesk_gateway_{metric}{{{_OF}{more}}}{_WINDOW}))"


def _quantile(share: float) -> str:
    buckets = _rate("request_seconds_bucket", "le, route", ',outcome="answered"')
    return f"histogram_quantile({share}, {buckets})"


_REQUESTS = Row(
    "Requests",
    (
        Panel(
            "By status",
            "All requests, those for health and pages too. 499: the client left before the answer.",
            Unit.PER_SECOND,
            (Query(_rate("requests_total", "code"), "{{code}}"),),
            Kind.STACK,
        ),
        Panel(
            "Latency by route",
            "Of what was answered. Texts that are written take as long as they are long.",
            Unit.SECONDS,
            (Query(_quantile(0.5), "P50 {{route}}"), Query(_quantile(0.99), "P99 {{route}}")),
            limit=Line(1.0),
        ),
        Panel(
            "In flight",
            "Requests that each gateway is working on.",
            Unit.NONE,
            (Query(f"copydesk_gateway_requests_in_flight{{{_OF}}}", "{{instance}}"),),
        ),
    ),
)

_ERRORS = Row(
    "Errors",
    (
        Panel(
            "The service's fault",
            "By code; these spend the budget of errors.",
            Unit.PER_SECOND,
            (Query(_rate("errors_total", "kind", ',side="service"') + " > 0", "{{kind}}"),),
            Kind.STACK,
        ),
        Panel(
            "The client's fault",
            "By code. A sudden rise of invalid_api_key after a change of keys means that a client has the old "
            "one.",
            Unit.PER_SECOND,
            (Query(_rate("errors_total", "kind", ',side="client"') + " > 0", "{{kind}}"),),
            Kind.STACK,
        ),
        Panel(
            "Shed",
            "Sentences refused because the pods are full: the queue was full, the deadline out of reach, or "
            "batch work made room.",
            Unit.PER_SECOND,
            (Query(_rate("shed_total", "reason"), "{{reason}}"),),
            Kind.STACK,
        ),
    ),
)

_PODS = Row(
    "Towards the pods",
    (
        Panel(
            "Sentences at the pods and waiting",
            "Against what this gateway may have there at once.",
            Unit.NONE,
            (
                Query(f"sum(copydesk_gateway_underway{{{_OF}}})", "underway"),
                Query(f"sum(copydesk_gateway_queued{{{_OF}}})", "waiting"),
                Query(f"sum(copydesk_gateway_allowance{{{_OF}}})", "allowed"),
            ),
        ),
        Panel(
            "Second tries",
            "Retries by reason, and hedges. refused_by_budget: there were more failures than retries are allowed "
            "for.",
            Unit.PER_SECOND,
            (
                Query(_rate("retries_total", "reason"), "retry {{reason}}"),
                Query(_rate("hedges_total", "reason"), "hedge {{reason}}"),
            ),
        ),
        Panel(
            "Pods by state",
            "As gateways see them, on average. unused: outside of a gateway's aperture, which is normal in a "
            "large fleet.",
            Unit.NONE,
            (Query(f"avg by (state) (copydesk_gateway_pods{{{_OF}}})", "{{state}}"),),
            Kind.STACK,
        ),
    ),
)

_EJECTIONS = Row(
    "Pods left alone",
    (
        Panel(
            "Ejections",
            "Pods that failed, fell silent, or were much slower than the others.",
            Unit.PER_SECOND,
            (Query(_rate("ejections_total", "reason"), "{{reason}}"),),
            Kind.STACK,
        ),
        Panel(
            "Ejected now",
            "By gateway.",
            Unit.NONE,
            (Query(f"copydesk_gateway_ejected{{{_OF}}}", "{{instance}}"),),
        ),
        Panel(
            "Panic",
            "Whether so many pods are ejected that all are used again.",
            Unit.YES_NO,
            (Query(f"copydesk_gateway_panic{{{_OF}}}", "{{instance}}"),),
        ),
    ),
)

_KNOWN = Row(
    "What it knows",
    (
        Panel(
            "Age of the membership",
            "Time since discovery was heard.",
            Unit.SECONDS,
            (Query(f"copydesk_gateway_membership_age_seconds{{{_OF}}}", "{{instance}}"),),
            limit=Line(60.0),
        ),
        Panel(
            "Redis",
            "Whether it answers, where one is used. Without it rates are counted by each gateway for itself, or "
            "limited keys are refused (REDIS_LOST).",
            Unit.YES_NO,
            (Query(f"copydesk_gateway_redis_up{{{_OF}}}", "{{instance}}"),),
        ),
        Panel(
            "Remembered corrections",
            "Where sentences were found, while the cache is on; and sentences that waited for the same one "
            "underway.",
            Unit.PER_SECOND,
            (
                Query(_rate("cache_lookups_total", "result"), "{{result}}"),
                Query(_rate("shared_sentences_total", "job"), "shared"),
            ),
        ),
    ),
)

_LANE = Row(
    "The express lane",
    (
        Panel(
            "Carried",
            "Requests that the compiled lane took, by how they ended; handed_back went on in Python.",
            Unit.PER_SECOND,
            (Query(_rate("lane_requests_total", "ending"), "{{ending}}"),),
        ),
        Panel(
            "Refused by key or limit",
            "rate and concurrency: a client's own limits. key: none that is known.",
            Unit.PER_SECOND,
            (Query(_rate("refused_total", "reason"), "{{reason}}"),),
        ),
        Panel(
            "Rollout",
            "Share of requests that the candidate answers; nothing while no rollout is on.",
            Unit.SHARE,
            (Query(f"copydesk_gateway_rollout_share{{{_OF}}}", "{{instance}}"),),
        ),
    ),
)

DASHBOARD = Dashboard(
    "gateway",
    "Copydesk: gateway",
    "What gateways answer, refuse, retry and know.",
    (_REQUESTS, _ERRORS, _PODS, _EJECTIONS, _KNOWN, _LANE),
    (Choice("instance", "copydesk_gateway_requests_in_flight", "instance"),),
)
