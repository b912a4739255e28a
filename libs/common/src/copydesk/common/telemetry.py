"""Structured logs and metrics, set up the same way in every process.

One line an event, on standard error: JSON for machines, columns for a person at a terminal. What libraries log
through the standard library takes the same road.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast
from wsgiref.simple_server import WSGIServer

import structlog
from prometheus_client import REGISTRY, CollectorRegistry, start_http_server
from structlog.typing import EventDict, Processor, WrappedLogger

LEVELS = ("debug", "info", "warning", "error", "critical")
_LEADING = ("timestamp", "level", "service", "event")


def configure_logging(service: str, *, level: str = "info", json: bool | None = None) -> None:
    """Send all logs of this process to standard error, each line naming `service`.

    `json` None means JSON unless standard error is a terminal. Raises `ValueError` for a level not in `LEVELS`.
    Calling it again replaces the previous set-up.
    """
    if level.lower() not in LEVELS:
        raise ValueError(f"log level {level!r} is none of {', '.join(LEVELS)}")
    as_json = not sys.stderr.isatty() if json is None else json
    shared = _shared_processors(service)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.ExtraAdder(), *shared], processors=_rendering(as_json)
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.captureWarnings(capture=True)


def _shared_processors(service: str) -> list[Processor]:
    def name_service(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        event.setdefault("service", service)
        return event

    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        name_service,
    ]


def _rendering(as_json: bool) -> list[Processor]:
    strip = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    if as_json:
        render = structlog.processors.JSONRenderer(default=str)
        return [strip, structlog.processors.format_exc_info, _lead_with_what_happened, render]
    # Where rich is installed, structlog would show the variables of every frame: texts and tokens among them.
    plain = structlog.dev.plain_traceback
    return [strip, structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)]


def _lead_with_what_happened(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Put first what a person looks for in a log: when, how serious, where, what."""
    return {key: event[key] for key in _LEADING if key in event} | dict(event)


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """Return the logger of a module; pass `__name__`. Events are snake_case, details are keyword arguments."""
    return cast(structlog.stdlib.BoundLogger, structlog.get_logger(name))


@contextmanager
def request_context(request_id: str) -> Iterator[None]:
    """Add `request_id` to every line logged inside, in this task and those it starts."""
    with structlog.contextvars.bound_contextvars(request_id=request_id):
        yield


@dataclass(frozen=True)
class MetricsServer:
    """The running `/metrics` endpoint of a process."""

    host: str
    port: int
    _server: WSGIServer
    _thread: threading.Thread

    def close(self) -> None:
        """Stop serving and free the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def serve_metrics(
    port: int, host: str = "127.0.0.1", *, registry: CollectorRegistry = REGISTRY
) -> MetricsServer | None:
    """Serve this process's metrics over HTTP from a thread of its own; port 0 means no metrics, and gives None.

    Raises `OSError` when the port is taken.
    """
    if port == 0:
        return None
    server, thread = start_http_server(port, addr=host, registry=registry)
    return MetricsServer(host, server.server_port, server, thread)
