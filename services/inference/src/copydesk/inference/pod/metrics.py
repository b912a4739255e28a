"""What a pod counts, for Prometheus.

Each child counts for itself, in the files of `prometheus_client`'s multiprocess mode, and the supervisor serves
their sum: counts then survive the child that made them. Gauges are the supervisor's own, from the pings. Beside
them it says whether the pod lives, and whether it takes requests, as probes ask.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from copydesk.common.messages import EndpointState
from copydesk.common.rpc.frames import Load, Status
from copydesk.common.status_server import Answer, Paths, StatusPortError, StatusServer
from copydesk.common.task_gauge import HELP, METRIC, tasks_now
from copydesk.inference.engine import CacheUse, GeneratedTokens
from copydesk.inference.pod.failure import CannotStartError

MULTIPROCESS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
_TASKS_TOLD_SECONDS = 1.0
_STEP_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_REQUEST_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 30.0)


def resident_bytes(pid: int | None) -> int:
    """Return the resident memory of a process, 0 for one that does not run."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


class TaskGauge:
    """How many tasks the event loop of a child of the pod holds; `name` says which child."""

    def __init__(self, name: str) -> None:
        self._tasks = Gauge(
            f"copydesk_inference_{METRIC}", HELP, ["process"], multiprocess_mode="mostrecent"
        ).labels(name)

    async def keep_told(self) -> None:
        """Count them again and again, for the supervisor to tell, until cancelled."""
        while True:
            self._tasks.set(tasks_now())
            await asyncio.sleep(_TASKS_TOLD_SECONDS)


class EngineMetrics:
    """Counted in the engine process that is `name` among those of the pod."""

    def __init__(self, name: str = "engine-0") -> None:
        self.step_seconds = Histogram(
            "copydesk_inference_step_seconds", "Duration of an engine step.", buckets=_STEP_BUCKETS
        )
        self._prompt_tokens = Counter(
            "copydesk_inference_prompt_tokens", "Prompt tokens of the requests that were answered."
        )
        self._completion_tokens = Counter(
            "copydesk_inference_completion_tokens", "Tokens generated for the requests that were answered."
        )
        self._passes = Counter(
            "copydesk_inference_passes", "Passes of the model that the requests took which were answered."
        )
        self._drafted_tokens = Counter(
            "copydesk_inference_drafted_tokens", "Tokens guessed and verified for the requests that were answered."
        )
        self._accepted_tokens = Counter(
            "copydesk_inference_accepted_tokens", "Guessed tokens that turned out to be right."
        )

        # Of an engine that was restarted the last value is the new one's: hence the label, and the latest in time.
        self._cache_reserved, self._cache_limit = (
            Gauge(
                f"copydesk_inference_cache_{what}_tokens", text, ["engine"], multiprocess_mode="mostrecent"
            ).labels(name)
            for what, text in (
                ("reserved", "Tokens of the cache of keys and values that running requests may come to need."),
                ("limit", "Tokens that there is room for in it."),
            )
        )

    def cached(self, use: CacheUse) -> None:
        """Show how much of the cache is taken."""
        self._cache_reserved.set(use.reserved)
        self._cache_limit.set(use.limit)

    def answered(self, result: GeneratedTokens) -> None:
        """Count one request that was answered."""
        self._prompt_tokens.inc(result.prompt_tokens)
        self._completion_tokens.inc(result.completion_tokens)
        self._passes.inc(result.passes)
        self._drafted_tokens.inc(result.drafted)
        self._accepted_tokens.inc(result.accepted)


class WorkerMetrics:
    """Counted in each worker process."""

    def __init__(self) -> None:
        requests = Counter("copydesk_inference_requests", "Requests that ended, by how they ended.", ["status"])
        self._requests = {status: requests.labels(status.name.lower()) for status in Status}
        self._seconds = Histogram(
            "copydesk_inference_request_seconds",
            "Time from a request's arrival to its answer, for those that were answered.",
            buckets=_REQUEST_BUCKETS,
        )

    def ended(self, status: Status, seconds: float) -> None:
        """Count one request; only answers enter the histogram, or quick failures would look like good service."""
        self._requests[status].inc()
        if status is Status.OK:
            self._seconds.observe(seconds)


class PodMetrics:
    """Counted in the supervisor, and served together with what its children count."""

    def __init__(self, children: Path) -> None:
        self._state = EndpointState.WARMING
        self.registry = CollectorRegistry()
        MultiProcessCollector(self.registry, path=str(children))  # type: ignore[no-untyped-call]
        self._restarts = Counter(
            "copydesk_inference_restarts", "Restarts of the pod's processes.", ["child"], registry=self.registry
        )
        self._running = self._gauge("running", "Requests that the engines are working on.")
        self._queued = self._gauge("queued", "Requests that wait for a slot.")
        self._capacity = self._gauge("capacity", "Requests that can run side by side.")
        self._ready = self._gauge("ready", "1 when the pod takes requests, else 0.")
        self._resident = Gauge(
            "copydesk_inference_resident_memory_bytes",
            "Resident memory of each process of the pod; what they share is counted in each.",
            ["process"],
            registry=self.registry,
        )

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"copydesk_inference_{name}", text, registry=self.registry)

    def restarted(self, child: str) -> None:
        """Count a restart of `child`."""
        self._restarts.labels(child).inc()

    def watch_memory(self, process: str, pid: Callable[[], int | None]) -> None:
        """Tell the memory of a process at each scrape, 0 while `pid` knows of none."""
        self._resident.labels(process).set_function(lambda: resident_bytes(pid()))

    def observe(self, load: Load, state: EndpointState) -> None:
        """Set the gauges, and what probes are told."""
        self._state = state
        self._running.set(load.running)
        self._queued.set(load.queued)
        self._capacity.set(load.capacity)
        self._ready.set(state is EndpointState.READY)

    def paths(self) -> Paths:
        """What is answered over HTTP: `/healthz`, `/readyz` and `/metrics`.

        The pod lives while its supervisor answers, which itself restarts a process of the pod that hangs.
        """
        return {
            "/healthz": lambda: _answer({"alive": True}, good=True),
            "/readyz": self._readiness,
            "/metrics": lambda: Answer(generate_latest(self.registry), CONTENT_TYPE_LATEST),
        }

    def _readiness(self) -> Answer:
        ready = self._state is EndpointState.READY
        return _answer({"ready": ready, "state": self._state.value}, good=ready)

    async def serve(self, host: str, port: int) -> StatusServer | None:
        """Serve `paths`, unless `port` is 0; raises `CannotStartError`."""
        if port == 0:
            return None
        server = StatusServer(host, port, self.paths())
        try:
            await server.start()
        except StatusPortError as error:
            cause = error.__cause__
            reason = os.strerror(cause.errno) if isinstance(cause, OSError) and cause.errno else error.reason
            raise CannotStartError("METRICS_PORT", f"cannot listen on {host}:{port}: {reason}") from error
        return server


def _answer(body: dict[str, object], *, good: bool) -> Answer:
    return Answer(msgspec.json.encode(body), status=HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE)
