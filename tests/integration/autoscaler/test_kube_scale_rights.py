"""What the autoscaler may do in a cluster: what its manifest grants is enough, needed, and no more."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest
import structlog

from copydesk.autoscaler.actuator import ActuatorError
from copydesk.autoscaler.kubernetes.connection import Named, Place, connect
from tests.fixtures.kube import KubeServer, KubeSpace
from tests.fixtures.kube_scaling import ACCOUNT, EPOCH, MODEL, replicas_of, workload_json
from tests.fixtures.until import until

MERGE = {"Content-Type": "application/merge-patch+json"}
EPOCH_NOW = 1_790_000_000_000


@pytest.fixture
def place(kube: KubeSpace, tmp_path: Path) -> Place:
    kube.create(workload_json(4))
    config = kube.config(tmp_path / "config", token=kube.token(ACCOUNT))
    return Place(config, "copydesk-autoscaler", 2.0)


async def said(place: Place, *, elected: bool = True) -> tuple[int | str, str]:
    """Stand for election, read and resize: the size or the sentence instead, and the warnings in the log."""
    with structlog.testing.capture_logs() as logs:
        actuator, leadership = connect(place, {MODEL: Named()})
        await actuator.start()
        await leadership.start()
        loop = asyncio.get_running_loop()
        await until(lambda: leadership.is_leader(loop.time()) if elected else "lease_denied" in str(logs))
        answer: int | str
        try:
            await actuator.size(MODEL)
            answer = await actuator.resize(MODEL, 5, EPOCH_NOW)
        except ActuatorError as error:
            answer = error.reason
        await leadership.close()
        await actuator.close()
    return answer, " ".join(str(log["problem"]) for log in logs if "problem" in log)


def without(manifest: dict[str, Any], resource: str, verb: str) -> dict[str, Any]:
    rules = [
        {**rule, "verbs": [each for each in rule["verbs"] if rule["resources"] != [resource] or each != verb]}
        for rule in manifest["rules"]
    ]
    return {**manifest, "rules": [rule for rule in rules if rule["verbs"]]}


async def test_the_rights_of_the_manifest_are_enough(kube: KubeSpace, place: Place) -> None:
    assert await said(place) == (5, "")
    assert replicas_of(kube) == 5
    assert "holderIdentity" not in kube.get("Lease", "copydesk-autoscaler")["spec"]


async def test_each_of_them_is_needed_and_named_when_it_is_missing(kube: KubeSpace, place: Place) -> None:
    manifest = kube.get("Role", ACCOUNT)
    granted = [(rule["resources"][0], verb) for rule in manifest["rules"] for verb in rule["verbs"]]
    assert len(granted) == len(set(granted)) == 8
    for resource, verb in granted:
        kube.delete("Deployment", MODEL)
        kube.create(workload_json(4))
        if kube.has("Lease", "copydesk-autoscaler") and verb == "create":
            kube.delete("Lease", "copydesk-autoscaler")
        kube.put(without(manifest, resource, verb))
        answer, warnings = await said(place, elected=resource != "leases")
        workload = resource.startswith("deployments")
        assert f'cannot {verb} resource "{resource}"' in (str(answer) if workload else warnings)
        assert replicas_of(kube) == (4 if workload else 5)


async def test_another_workload_and_another_lease_are_out_of_bounds(kube: KubeSpace, place: Place) -> None:
    kube.create(workload_json(4, name="other"))
    actuator, _ = connect(place, {MODEL: Named("deployments/other")})
    with pytest.raises(ActuatorError, match=r"a right or a valid token is missing.*deployments\.apps \"other\""):
        await actuator.resize(MODEL, 5, EPOCH_NOW)
    await actuator.close()
    other = Place(place.config, "copydesk-eds", 2.0)
    with structlog.testing.capture_logs() as logs:
        _, leadership = connect(other, {})
        await leadership.start()
        await until(lambda: "lease_denied" in str(logs))
        await leadership.close()


@pytest.mark.parametrize(
    "path",
    [
        "api/v1/namespaces/{}/secrets",
        "api/v1/namespaces/{}/pods",
        "apis/apps/v1/namespaces/{}/deployments",
        "apis/apps/v1/namespaces/{}/deployments/gec-en",
        "apis/apps/v1/namespaces/{}/statefulsets/gec-en/scale",
        "apis/coordination.k8s.io/v1/namespaces/{}/leases",
        "apis/autoscaling/v1/horizontalpodautoscalers",
    ],
)
def test_nothing_else_can_be_read(kube: KubeSpace, kube_server: KubeServer, place: Place, path: str) -> None:
    with as_autoscaler(kube, kube_server) as client:
        assert client.get(path.format(kube.name)).status_code == 403


def test_what_pods_run_cannot_be_changed_not_even_through_the_status(
    kube: KubeSpace, kube_server: KubeServer, place: Place
) -> None:
    path = f"apis/apps/v1/namespaces/{kube.name}/deployments/{MODEL}"
    containers = [{"name": "pod", "image": "registry.example/another:1"}]
    change = {
        "metadata": {"annotations": {EPOCH: "7"}, "labels": {"app": "another"}},
        "spec": {"replicas": 9, "template": {"spec": {"containers": containers}}},
    }
    before = kube.get("Deployment", MODEL)
    with as_autoscaler(kube, kube_server) as client:
        assert client.patch(path, json=change, headers=MERGE).status_code == 403
        assert client.patch(f"{path}/status", json=change, headers=MERGE).is_success
    after = kube.get("Deployment", MODEL)
    assert after["metadata"]["annotations"] == {EPOCH: "7"}
    assert (after["spec"], after["metadata"]["labels"]) == (before["spec"], before["metadata"]["labels"])


def as_autoscaler(kube: KubeSpace, server: KubeServer) -> httpx2.Client:
    headers = {"Authorization": f"Bearer {kube.token(ACCOUNT)}"}
    return httpx2.Client(base_url=server.url, headers=headers, verify=server.tls)
