"""OpenTelemetry traces across processes, for those who set an exporter; nothing at all for everybody else.

A trace travels as its `traceparent` (W3C Trace Context): in the header of an HTTP request, and in each RPC
request. Whether and where spans go is said by OpenTelemetry's own variables, so that what people know of other
services holds here too: `OTEL_EXPORTER_OTLP_ENDPOINT` (or `..._TRACES_ENDPOINT`) switches tracing on,
`OTEL_TRACES_SAMPLER` says how many requests are traced, `OTEL_SDK_DISABLED=true` switches it off again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from copydesk.common.telemetry import get_logger

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span as OtelSpan
    from opentelemetry.trace import Tracer

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_here: ContextVar[str] = ContextVar("traceparent", default="")
_log = get_logger(__name__)

Attribute = str | int | float | bool


class Span:
    """A part of a trace that has begun; `traceparent` is what those who do some of the work are told."""

    __slots__ = ("_span", "traceparent")

    def __init__(self, span: OtelSpan) -> None:
        context = span.get_span_context()
        self._span = span
        self.traceparent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"

    def end(self, error: str = "", **attributes: Attribute) -> None:
        """End it, once; with `error`, it counts as failed. Names of attributes get the prefix `copydesk.`."""
        from opentelemetry.trace import Status, StatusCode

        for name, value in attributes.items():
            self._span.set_attribute(f"copydesk.{name}", value)
        if error:
            self._span.set_status(Status(StatusCode.ERROR, error))
        self._span.end()


class Tracing:
    """The tracing of one process: off until `configure` finds an exporter."""

    def __init__(self) -> None:
        self._tracer: Tracer | None = None
        self._provider: TracerProvider | None = None

    @property
    def on(self) -> bool:
        """Whether there is an exporter."""
        return self._tracer is not None

    @property
    def here(self) -> str:
        """The `traceparent` of the span that the running code works for; empty where there is none."""
        return "" if self._tracer is None else _here.get()

    @contextmanager
    def within(self, traceparent: str) -> Iterator[None]:
        """Have what runs inside work for a span."""
        token = _here.set(traceparent)
        try:
            yield
        finally:
            _here.reset(token)

    def configure(self, service: str) -> bool:
        """Switch tracing on if the environment names an exporter; says whether it is on."""
        if not any(os.environ.get(name) for name in ENDPOINTS):
            return False
        if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
            return False
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        provider = TracerProvider(resource=Resource.create({"service.name": f"copydesk-{service}"}))
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._provider, self._tracer = provider, provider.get_tracer("copydesk")
        _log.info("tracing_on", endpoint=next(filter(None, map(os.environ.get, ENDPOINTS))))
        return True

    def start(self, name: str, traceparent: str = "", **attributes: Attribute) -> Span | None:
        """Begin a span, under the one that `traceparent` names; None while tracing is off."""
        if self._tracer is None:
            return None
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        carrier = {"traceparent": traceparent} if _TRACEPARENT.fullmatch(traceparent) else {}
        above = TraceContextTextMapPropagator().extract(carrier)
        named = {f"copydesk.{key}": value for key, value in attributes.items()}
        return Span(self._tracer.start_span(name, context=above, attributes=named))

    @contextmanager
    def span(self, name: str, traceparent: str = "") -> Iterator[None]:
        """Have what runs inside be a span; does nothing while tracing is off."""
        span = self.start(name, traceparent)
        if span is None:
            yield
            return
        try:
            with self.within(span.traceparent):
                yield
        except BaseException as error:
            span.end(type(error).__name__)
            raise
        span.end()

    def close(self) -> None:
        """Send what is left; blocks for as long as the exporter takes, some seconds if nobody is there."""
        provider, self._provider, self._tracer = self._provider, None, None
        if provider is not None:
            provider.shutdown()


tracing = Tracing()
"""The one of this process."""
