"""What goes on inside pods: batches, tokens, drafts, memory."""

from __future__ import annotations

from deploy.grafana.panels import Choice, Dashboard, Kind, Line, Panel, Query, Row, Unit

_OF = '{instance=~"$instance"}'
_WINDOW = "[$__rate_interval]"


def _rate(metric: str, by: str = "instance") -> str:
    return f"sum by ({by}) (rate(copydesk_inference_{metric}{_OF}{_WINDOW}))"


def _quantile(share: float, metric: str) -> str:
    return f"histogram_quantile({share}, {_rate(f'{metric}_seconds_bucket', 'le')})"


_REQUESTS = Row(
    "Requests",
    (
        Panel(
            "Requests",
            "That pods ended, by how. overloaded: the queue was full, which gateways take for back-pressure.",
            Unit.PER_SECOND,
            (Query(_rate("requests_total", "status"), "{{status}}"),),
            Kind.STACK,
        ),
        Panel(
            "Latency in the pod",
            "From a request's arrival to its answer, waiting included. What gateways see beyond it is theirs.",
            Unit.SECONDS,
            (Query(_quantile(0.5, "request"), "P50"), Query(_quantile(0.99, "request"), "P99")),
            limit=Line(1.0),
        ),
        Panel(
            "Queue",
            "Requests that wait for a slot, by pod. More than a few for long: too few pods.",
            Unit.NONE,
            (Query(f"copydesk_inference_queued{_OF}", "{{instance}}"),),
        ),
    ),
)

_STEPS = Row(
    "Steps",
    (
        Panel(
            "Batch",
            "Requests that each pod runs side by side.",
            Unit.NONE,
            (
                Query(f"copydesk_inference_running{_OF}", "{{instance}}"),
                Query(f"max(copydesk_inference_capacity{_OF})", "most"),
            ),
        ),
        Panel(
            "Duration of a step",
            "All requests of a pod advance together, by a step.",
            Unit.SECONDS,
            (Query(_quantile(0.5, "step"), "P50"), Query(_quantile(0.99, "step"), "P99")),
        ),
        Panel(
            "Steps",
            "By pod. None, while requests run: the engine hangs, and is restarted after a minute.",
            Unit.PER_SECOND,
            (Query(_rate("step_seconds_count"), "{{instance}}"),),
        ),
    ),
)

_TOKENS = Row(
    "Tokens",
    (
        Panel(
            "Tokens",
            "Read and written a second, by all pods.",
            Unit.TOKENS,
            (
                Query(_rate("prompt_tokens_total", "job"), "read"),
                Query(_rate("completion_tokens_total", "job"), "written"),
            ),
        ),
        Panel(
            "Drafts that were right",
            "Share of the guessed tokens that the model confirmed.",
            Unit.SHARE,
            (Query(f"{_rate('accepted_tokens_total')} / {_rate('drafted_tokens_total')}", "{{instance}}"),),
        ),
        Panel(
            "Tokens a pass",
            "What one pass of the model yields for a request: 1 without drafts.",
            Unit.NONE,
            (Query(f"{_rate('completion_tokens_total')} / {_rate('passes_total')}", "{{instance}}"),),
        ),
    ),
)

_MEMORY = Row(
    "Memory and processes",
    (
        Panel(
            "Cache of keys and values",
            "Share of it that running requests have reserved. Full: requests wait although slots are free.",
            Unit.SHARE,
            (
                Query(
                    f"sum by (instance) (copydesk_inference_cache_reserved_tokens{_OF}) / "
                    f"sum by (instance) (copydesk_inference_cache_limit_tokens{_OF})",
                    "{{instance}}",
                ),
            ),
        ),
        Panel(
            "Resident memory",
            "Of each pod's processes, what they share counted in each.",
            Unit.BYTES,
            (Query(f"sum by (instance) (copydesk_inference_resident_memory_bytes{_OF})", "{{instance}}"),),
        ),
        Panel(
            "Restarts",
            "Processes of a pod that ended, hung or were killed, an hour.",
            Unit.NONE,
            (
                Query(
                    f"sum by (instance, child) (increase(copydesk_inference_restarts_total{_OF}[1h])) > 0",
                    "{{instance}} {{child}}",
                ),
            ),
            Kind.STACK,
        ),
    ),
)

_READY = Row(
    "Readiness",
    (
        Panel(
            "Ready",
            "Whether each pod takes requests.",
            Unit.YES_NO,
            (Query(f"copydesk_inference_ready{_OF}", "{{instance}}"),),
        ),
        Panel(
            "Capacity",
            "Requests that can run side by side, in all pods that are ready.",
            Unit.NONE,
            (
                Query(f"sum(copydesk_inference_capacity{_OF} and copydesk_inference_ready == 1)", "capacity"),
                Query(f"sum(copydesk_inference_running{_OF})", "running"),
            ),
        ),
    ),
)

DASHBOARD = Dashboard(
    "engine",
    "Copydesk: engine",
    "What goes on inside pods: batches, tokens, drafts, memory.",
    (_REQUESTS, _STEPS, _TOKENS, _MEMORY, _READY),
    (Choice("instance", "copydesk_inference_ready", "instance"),),
)
