"""Every metric that a dashboard, a rule or an alert names is exported, with the labels that it is asked by.

The services are started, and read as Prometheus reads them. What has labels only once something has gone wrong is
counted by the service's own counters in this process, or has its labels from where the service declares them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from copydesk.autoscaler.metrics import Metrics as AutoscalerMetrics
from copydesk.common.messages import RolloutPlan, RolloutStage
from copydesk.common.rpc import Status
from copydesk.gateway import faults
from copydesk.gateway.service import Gateway
from copydesk.gateway.settings import GatewaySettings
from copydesk.imagefetcher.metrics import Metrics as ImageFetcherMetrics
from copydesk.inference.pod.metrics import PodMetrics
from copydesk.routing import Reason
from tests.fixtures.certificates import self_signed
from tests.fixtures.fleet import Fleet, running_fleet
from tests.fixtures.image_daemon import wait_until
from tests.fixtures.nats import free_port
from tests.fixtures.promql import ADDED, Use, expressions
from tests.fixtures.tiny_model import write_tiny_model

Labels = dict[str, set[str]]
"""The labels that each series has, by its name."""

PROMETHEUS_OWN = frozenset({"up"})
PATIENCE = 60.0
SERVICES = ("gateway", "eds", "autoscaler", "inference", "imagefetcher")


def exported(text: str) -> Labels:
    """Return what a service exports; a family without samples is there, and has no labels yet."""
    found: Labels = defaultdict(set)
    for family in text_string_to_metric_families(text):
        for name in _names(family.name, family.type):
            found[name] |= set()
        for sample in family.samples:
            found[sample.name] |= set(sample.labels)
    return found


def declared(registry: CollectorRegistry) -> Labels:
    """Return the labels that the metrics of a registry take, whether or not they have counted anything."""
    found: Labels = defaultdict(set)
    for name, collector in registry._names_to_collectors.items():
        found[name] |= set(getattr(collector, "_labelnames", ())) | ({"le"} if name.endswith("_bucket") else set())
    return found


def _names(name: str, kind: str) -> tuple[str, ...]:
    if kind == "counter":
        return (f"{name}_total",)
    return tuple(f"{name}{part}" for part in ("_bucket", "_count", "_sum")) if kind == "histogram" else (name,)


def read(port: int, ready: Callable[[str], bool] = bool) -> str:
    """Read the metrics at a port of this machine, once there are those that are waited for."""
    text = ""

    def look() -> bool:
        nonlocal text
        try:
            text = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE).text
        except httpx.TransportError:
            return False
        return ready(text)

    wait_until(look, PATIENCE)
    return text


@pytest.fixture(scope="module")
def fleet_metrics(tmp_path_factory: pytest.TempPathFactory) -> Labels:
    """What gateway, discovery, autoscaler and a pod export after a correction, and one that was remembered."""
    folder = tmp_path_factory.mktemp("observed")
    model = write_tiny_model(folder / "tiny", always_stops=True)
    ports = {service: free_port() for service in ("EDS", "AUTOSCALER", "INFERENCE")}
    environ = {f"COPYDESK_{service}_METRICS_PORT": str(port) for service, port in ports.items()}
    environ["COPYDESK_GATEWAY_CACHE"] = "memory"
    with running_fleet(folder / "fleet", "--model", str(model), "--autoscale", "1:1", environ=environ) as fleet:
        return _read_fleet(fleet, ports)


def _read_fleet(fleet: Fleet, ports: dict[str, int]) -> Labels:
    for _ in range(2):
        answer = httpx.post(f"{fleet.url}/v1/correct", json={"text": "She go home."}, timeout=PATIENCE)
        assert answer.status_code == 200
    texts = [
        read(fleet.port, lambda text: "bus_connected 1" in text),
        read(ports["EDS"], lambda text: "copydesk_eds_endpoints{" in text),
        read(ports["AUTOSCALER"], lambda text: "copydesk_autoscaler_desired_replicas{" in text),
        read(ports["INFERENCE"], lambda text: 'copydesk_inference_requests_total{status="ok"} 1' in text),
    ]
    return merged(*(exported(text) for text in texts))


@pytest.fixture(scope="module")
def image_fetcher_metrics(tmp_path_factory: pytest.TempPathFactory) -> Labels:
    """What the daemon of a node exports that has no image yet."""
    reason = None
    if os.geteuid() != 0 or not Path("/dev/fuse").exists():
        reason = "the image fetcher needs root and /dev/fuse"
    if reason is not None and os.environ.get("COPYDESK_REQUIRE_ALL") == "1":
        pytest.fail(reason)
    if reason is not None:
        pytest.skip(reason)
    port = free_port()
    with _image_fetcher(tmp_path_factory.mktemp("node"), port):
        return exported(read(port))


@contextmanager
def _image_fetcher(folder: Path, port: int) -> Iterator[None]:
    settings = {"STATE_DIR": folder / "state", "RUN_DIR": folder / "run", "METRICS_PORT": port}
    environ = os.environ | {f"COPYDESK_IMAGEFETCHER_{key}": str(value) for key, value in settings.items()}
    process = subprocess.Popen([sys.executable, "-m", "copydesk.imagefetcher"], env=environ)
    try:
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE)


async def troubled_gateway(folder: Path) -> Labels:
    """What a gateway exports that has seen one of every trouble."""
    private, certificate = self_signed()
    (folder / "key.pem").write_bytes(private)
    (folder / "cert.pem").write_bytes(certificate)
    settings: dict[str, object] = {
        "redis_url": "redis://127.0.0.1:1",
        "rpc_tls_cert_file": folder / "cert.pem",
        "rpc_tls_key_file": folder / "key.pem",
        "rpc_tls_ca_file": folder / "cert.pem",
    }
    gateway = Gateway(GatewaySettings(**settings))  # type: ignore[arg-type]
    try:
        gateway.metrics.retry("unavailable")
        gateway.metrics.sentence(Status.UNAVAILABLE)
        gateway.dispatcher.routing.shed("queue_full")
        gateway.dispatcher.routing.hedge("slow")
        gateway.fleet.health.ejections[Reason.FAILURES] += 1
        gateway.gatekeeper.count_refusal(faults.rate_limited(1.0, 1))
        gateway.rollout.hear(_plan())
        return exported(gateway.render_metrics())
    finally:
        await gateway.close()


def _plan() -> RolloutPlan:
    return RolloutPlan(
        model="gec-en",
        rollout="r",
        epoch=1,
        sequence=1,
        sent_at=0.0,
        stage=RolloutStage.SHADOW,
        baseline="a" * 64,
        candidate="b" * 64,
    )


def merged(*several: Labels) -> Labels:
    result: Labels = defaultdict(set)
    for labels in several:
        for name, found in labels.items():
            result[name] |= found
    return result


def unmet(use: Use, there: Labels, labels: Labels) -> str | None:
    """Say what is missing of what an expression asks for; None when nothing is."""
    names = [name for name in there if use.means(name)]
    if not names:
        return f"{use.where}: nobody exports {use.metric}"
    if any(use.labels <= labels[name] for name in names):
        return None
    return f"{use.where}: {use.metric} has no label {', '.join(sorted(use.labels - labels[names[0]]))}"


async def test_all_that_is_asked_for_is_exported(
    fleet_metrics: Labels, image_fetcher_metrics: Labels, tmp_path: Path
) -> None:
    registry = CollectorRegistry()
    AutoscalerMetrics(registry)
    ImageFetcherMetrics(registry)
    there = merged(fleet_metrics, image_fetcher_metrics, await troubled_gateway(tmp_path))
    labels = merged(there, declared(registry), declared(PodMetrics(tmp_path).registry))
    asked = [use for expression in expressions() for use in expression.uses() if ":" not in use.metric]
    assert len({use.metric for use in asked}) > 60
    missing = [unmet(use, there, labels) for use in asked if use.metric not in PROMETHEUS_OWN]
    assert not [sentence for sentence in missing if sentence]


def test_each_service_tells_when_its_certificates_end(
    fleet_metrics: Labels, image_fetcher_metrics: Labels
) -> None:
    there = {**fleet_metrics, **image_fetcher_metrics}
    for service in SERVICES:
        assert f"copydesk_{service}_tls_certificate_expiry_timestamp_seconds" in there


def test_no_service_has_a_label_that_prometheus_adds(fleet_metrics: Labels, image_fetcher_metrics: Labels) -> None:
    """Prometheus would rename it, and what asks by it would ask for something else."""
    for metrics in (fleet_metrics, image_fetcher_metrics):
        assert not {name for name, labels in metrics.items() if labels & ADDED}
