"""What stands in the manifests and elsewhere too is the same: images, alerts, jobs, nodes of NATS, sizes."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from copydesk.simulator.profile import ASSUMED_POD
from tests.fixtures.manifests import K8S, OVERLAYS, named, of_kind, workload, workloads

ROOT = K8S.parent
OURS = "ghcr.io/copydesk/"
IMAGE = re.compile(r"ghcr\.io/copydesk/[a-z-]+:[\w.]+")


def _built_images() -> set[str]:
    """The images that the Dockerfiles say they make."""
    found = {IMAGE.findall(path.read_text())[0] for path in ROOT.glob("services/*/Dockerfile*")}
    assert len(found) == 6
    return found


def _composed_images() -> set[str]:
    """The images of compose.yaml, with what it takes where nobody says otherwise."""
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"].values()
    return {re.sub(r"\$\{[A-Z_]+:-([^}]*)\}", r"\1", service["image"]) for service in services}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_images_are_those_that_are_built_and_composed(overlay: str) -> None:
    images = {container["image"] for each in workloads(overlay) for container in each.containers}
    own = {image for image in images if image.startswith(OURS)}
    assert own <= _built_images()
    assert images - own <= _composed_images()
    assert {image.partition(":")[0] for image in images - own} == {"nats", "redis"}


def test_the_version_is_that_of_the_distributions() -> None:
    version = tomllib.loads((ROOT / "services" / "gateway" / "pyproject.toml").read_text())["project"]["version"]
    for overlay in OVERLAYS:
        images = {container["image"] for each in workloads(overlay) for container in each.containers}
        assert {image.partition(":")[2] for image in images if image.startswith(OURS)} == {version}


def test_pods_run_on_processors_or_gpus_as_the_overlay_says() -> None:
    for overlay, name in (("local", "inference"), ("h100", "inference-cuda")):
        for container in workload(overlay, "inference").containers:
            assert container["image"].startswith(f"{OURS}{name}:")


def test_the_rule_of_the_operator_is_the_file_of_alerts() -> None:
    made = subprocess.run(
        [str(ROOT / "scripts" / "prometheus-rule.sh")], capture_output=True, text=True, timeout=30, check=True
    ).stdout
    there = (K8S / "base" / "monitoring" / "rule.yaml").read_text()
    assert there == made, "run scripts/prometheus-rule.sh > k8s/base/monitoring/rule.yaml"
    alerts = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text())
    assert named("h100", "PrometheusRule", "copydesk")["spec"] == alerts


def test_the_monitors_give_jobs_the_names_that_alerts_and_dashboards_know() -> None:
    config = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())
    known = {job["job_name"] for job in config["scrape_configs"]} - {"prometheus"}
    given = set()
    for monitor in of_kind("h100", "ServiceMonitor", "PodMonitor"):
        (endpoint,) = monitor["spec"].get("endpoints") or monitor["spec"]["podMetricsEndpoints"]
        (relabeling,) = endpoint["relabelings"]
        assert relabeling["targetLabel"] == "job"
        given.add(relabeling["replacement"])
        asks_for_key = "authorization" in endpoint
        assert asks_for_key is (relabeling["replacement"] == "gateway")
    assert given == known


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_nodes_of_nats_are_those_that_its_configuration_names(overlay: str) -> None:
    (config,) = (each for each in of_kind(overlay, "ConfigMap") if "nats.conf" in each["data"])
    routes = re.findall(r"nats-route://([\w.-]+):6222", config["data"]["nats.conf"])
    nats = workload(overlay, "nats")
    service = nats.manifest["spec"]["serviceName"]
    assert routes == [f"{nats.name}-{index}.{service}" for index in range(nats.manifest["spec"]["replicas"])]
    assert (
        nats.pod["terminationGracePeriodSeconds"] >= 5 + 30 + 10
    )  # lame duck: grace, duration, and some to spare
    clients = {
        value
        for each in workloads(overlay)
        for name, value in each.environment(each.main).items()
        if name.endswith("_NATS_URL")
    }
    assert clients == {"tls://copydesk-nats-client:4222"}


def test_the_h100_overlay_has_the_size_that_its_arithmetic_comes_to() -> None:
    autoscaler = workload("h100", "autoscaler")
    given = autoscaler.environment(autoscaler.main)
    assert float(given["COPYDESK_AUTOSCALER_RATE"]) == ASSUMED_POD.rate
    assert float(given["COPYDESK_AUTOSCALER_CONCURRENCY"]) == ASSUMED_POD.concurrency

    answer = re.search(r"(\d+) pods on average and (\d+) at\s+most", (ROOT / "docs" / "benchmarks.md").read_text())
    assert answer is not None
    mean, peak = map(int, answer.groups())
    said = (K8S / "overlays" / "h100" / "kustomization.yaml").read_text()
    assert f"at the peak            {peak} pods" in said
    assert f"on the day's average   {mean} pods" in said
    most, least = int(given["COPYDESK_AUTOSCALER_MAX_PODS"]), int(given["COPYDESK_AUTOSCALER_MIN_PODS"])
    assert most >= peak + peak / 3  # a zone is lost at the peak
    assert least * ASSUMED_POD.rate >= 36_000  # the night, at full load

    gateway = workload("h100", "gateway")
    told = gateway.environment(gateway.main)
    replicas = gateway.manifest["spec"]["replicas"]
    assert replicas % 3 == 0
    assert 200_000 / (replicas * 2 / 3) <= 0.75 * 70_654 / 2  # two zones of three, busy for three quarters at most
    assert replicas * int(told["COPYDESK_GATEWAY_APERTURE"]) >= 2 * most
    assert int(told["COPYDESK_GATEWAY_QUEUE"]) <= 0.5 * 200_000 / replicas

    pod = workload("h100", "inference")
    slots = int(pod.environment(pod.main)["COPYDESK_INFERENCE_SLOTS"])
    assert slots >= ASSUMED_POD.concurrency


def test_the_h100_overlay_spreads_over_zones_and_asks_for_gpus() -> None:
    for each in workloads("h100"):
        if each.namespace != "copydesk":
            continue
        assert each.pod["priorityClassName"].startswith("copydesk-"), each.name
        if each.component == "redis":  # there is one
            continue
        zone = each.pod["topologySpreadConstraints"][0]
        assert zone["topologyKey"] == "topology.kubernetes.io/zone"
        strict = zone["whenUnsatisfiable"] == "DoNotSchedule"
        assert strict is (each.component in ("gateway", "eds", "nats")), each.name
    resources = workload("h100", "inference").main["resources"]
    assert resources["limits"]["nvidia.com/gpu"] == resources["requests"]["nvidia.com/gpu"] == "1"


def test_every_file_below_k8s_is_used() -> None:
    files = {path for path in K8S.rglob("*") if path.is_file() and path.name != "kustomization.yaml"}
    used: set[Path] = set()
    for path in K8S.rglob("kustomization.yaml"):
        kustomization = yaml.safe_load(path.read_text())
        named_there = [*kustomization["resources"]] if "resources" in kustomization else []
        named_there += [patch["path"] for patch in kustomization.get("patches", ()) if "path" in patch]
        named_there += [name for config in kustomization.get("configMapGenerator", ()) for name in config["files"]]
        used |= {(path.parent / name).resolve() for name in named_there}
    assert files <= used
