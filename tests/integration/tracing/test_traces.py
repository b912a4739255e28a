"""One request through gateway, worker and engine, each a process of its own, is one trace for the collector."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from copydesk.common.messages import Endpoint, EndpointState
from tests.fixtures.nats import NatsServer
from tests.fixtures.tiny_model import write_tiny_model
from tests.integration.gateway.conftest import GatewayProcess, Site, eventually
from tests.integration.pod.running_pod import running_pod

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Collector(ThreadingHTTPServer):
    """Takes spans as an OpenTelemetry collector does, by OTLP over HTTP."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Receiver)
        self.spans: dict[str, list[Span]] = {}
        """By service."""

    @property
    def url(self) -> str:
        """What exporters are told."""
        return f"http://127.0.0.1:{self.server_port}"

    def named(self, service: str) -> list[Span]:
        """The spans of a service."""
        return self.spans.get(f"copydesk-{service}", [])


class _Receiver(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        request = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"])))
        for spans in request.resource_spans:
            service = next(a.value.string_value for a in spans.resource.attributes if a.key == "service.name")
            found = self.server.spans.setdefault(service, [])
            found += [span for scope in spans.scope_spans for span in scope.spans]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    collector = Collector()
    thread = threading.Thread(target=collector.serve_forever)
    thread.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    yield collector
    collector.shutdown()
    thread.join()
    collector.server_close()


@pytest.fixture
def tiny_pod_model(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path / "model", seed=1)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        yield Site(stack, tmp_path)


async def start(site: Site, nats: NatsServer, port: int) -> GatewayProcess:
    endpoint = Endpoint(id="pod", host="127.0.0.1", port=port, state=EndpointState.READY)
    (await site.discovery(nats)).announce(endpoint)
    return await site.gateway(nats.url)


async def test_a_request_is_one_trace_from_its_caller_to_the_engine(
    collector: Collector, site: Site, nats_server: NatsServer, tiny_pod_model: Path, tmp_path: Path
) -> None:
    with running_pod(tiny_pod_model, tmp_path / "pod.log", DEVICE="null:1", DTYPE="auto") as pod:
        pod.wait_ready()
        gateway = await start(site, nats_server, pod.port)
        client = await site.client(gateway)

        async def ready() -> bool:
            return (await client.get("/readyz")).status_code == 200

        await eventually(ready)
        headers = {"traceparent": f"00-{TRACE}-{CALLER}-01"}
        answer = await client.post("/v1/correct", json={"text": "She go to school."}, headers=headers)
        assert answer.status_code == 200
        lacking = await client.post("/v1/correct", json={}, headers=headers)
        assert lacking.status_code == 400

        async def all_there() -> bool:
            every = [span for found in list(collector.spans.values()) for span in list(found)]
            traced = [span for span in every if span.trace_id.hex() == TRACE]
            return len(traced) == 5  # two requests, and what became of the good one

        await eventually(all_there)
    every = [span for service in collector.spans.values() for span in service]
    spans = {span.name: span for span in every if span.trace_id.hex() == TRACE}
    requests = [span for span in collector.named("gateway") if span.name == "POST /v1/correct"]
    good, bad = sorted(requests, key=lambda span: span.start_time_unix_nano)
    assert good.parent_span_id.hex() == bad.parent_span_id.hex() == CALLER
    assert (good.status.code, bad.status.code) == (Status.STATUS_CODE_UNSET, Status.STATUS_CODE_ERROR)
    assert spans["dispatch"].parent_span_id == good.span_id
    assert spans["worker"].parent_span_id == spans["dispatch"].span_id
    assert spans["engine"].parent_span_id == spans["worker"].span_id
    assert good.start_time_unix_nano <= spans["engine"].start_time_unix_nano <= good.end_time_unix_nano


async def test_without_an_exporter_nothing_is_traced(
    site: Site, nats_server: NatsServer, tiny_pod_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    with running_pod(tiny_pod_model, tmp_path / "pod.log", DEVICE="null:1", DTYPE="auto") as pod:
        pod.wait_ready()
        gateway = await start(site, nats_server, pod.port)
        assert "tracing_on" not in gateway.log()
        assert not pod.events("tracing_on")
