"""Sizing workloads on a real API server: the scale subresource, versions and epochs, other writers, a restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from copydesk.autoscaler.actuator import ActuatorError
from copydesk.autoscaler.kubernetes import actuator as module
from copydesk.autoscaler.kubernetes.actuator import KubernetesActuator
from copydesk.autoscaler.kubernetes.target import Kind, Target
from copydesk.kube.api import find_config
from tests.fixtures.kube import KubeServer, KubeSpace
from tests.fixtures.kube_memory import Call, Gate
from tests.fixtures.kube_scaling import ACCOUNT, EPOCH, MODEL, GatedApi, replicas_of, resize, workload_json

OLD, NEW = 1_790_000_000_000, 1_790_000_000_001
MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture
def config(kube: KubeSpace, tmp_path: Path) -> Path:
    kube.create(workload_json(4))
    return kube.config(tmp_path / "config", token=kube.token(ACCOUNT))


@pytest.fixture
async def api(config: Path) -> AsyncIterator[GatedApi]:
    api = GatedApi(find_config(config))
    yield api
    await api.close()


@pytest.fixture
def actuator(kube: KubeSpace, api: GatedApi) -> KubernetesActuator:
    return sizing(kube, api)


def sizing(kube: KubeSpace, api: GatedApi) -> KubernetesActuator:
    return KubernetesActuator(api, {MODEL: Target(kube.name, Kind.DEPLOYMENT, MODEL)})


async def test_a_resize_writes_the_size_and_the_epoch_and_nothing_else(
    kube: KubeSpace, actuator: KubernetesActuator
) -> None:
    before = kube.get("Deployment", MODEL)
    assert await actuator.size(MODEL) == 4
    assert await actuator.resize(MODEL, 7, OLD) == 7
    assert await actuator.size(MODEL) == 7
    after = kube.get("Deployment", MODEL)
    assert after["metadata"]["annotations"] == {EPOCH: str(OLD)}
    assert after["metadata"]["labels"] == before["metadata"]["labels"]
    assert after["spec"] == {**before["spec"], "replicas": 7}
    # Had the annotation been written to the Deployment itself, that would have been a generation more.
    assert after["metadata"]["generation"] == before["metadata"]["generation"] + 1
    assert "copydesk-autoscaler" in {each["manager"] for each in after["metadata"]["managedFields"]}


@pytest.mark.parametrize("kind", [Kind.STATEFUL_SET, Kind.REPLICA_SET])
async def test_other_kinds_are_sized_in_the_same_way_with_the_same_rights_to_them(
    kube: KubeSpace, api: GatedApi, kind: Kind
) -> None:
    kube.create(workload_json(2, name="chat", kind=kind.value))
    role = kube.get("Role", ACCOUNT)
    rules = [rule for rule in role["rules"] if rule["apiGroups"] == ["apps"]]
    for rule in rules:
        resources = [resource.replace("deployments", kind.plural) for resource in rule["resources"]]
        role["rules"].append({**rule, "resources": resources, "resourceNames": ["chat"]})
    kube.put(role)
    target = Target(kube.name, kind, "chat")
    assert await KubernetesActuator(api, {"chat": target}).resize("chat", 3, OLD) == 3
    written = kube.get(kind.value, "chat")
    assert (written["spec"]["replicas"], written["metadata"]["annotations"]) == (3, {EPOCH: str(OLD)})


async def test_a_deployment_that_does_not_say_asks_for_one_pod_and_one_of_none_is_left_alone(
    kube: KubeSpace, api: GatedApi, actuator: KubernetesActuator
) -> None:
    kube.put(workload_json(None))
    assert await actuator.size(MODEL) == 1
    resize(kube, 0)
    assert await actuator.size(MODEL) == 0
    assert await actuator.resize(MODEL, 5, OLD) == 0
    assert replicas_of(kube) == 0


@pytest.mark.parametrize(("wanted", "then"), [(3, 20), (25, 25)], ids=["shrinks", "grows"])
async def test_a_person_who_resizes_between_reading_and_writing_is_not_overruled_downwards(
    kube: KubeSpace, api: GatedApi, actuator: KubernetesActuator, wanted: int, then: int
) -> None:
    refused = 0

    async def intervene(call: Call) -> None:
        nonlocal refused
        if call.method == "PUT" and not refused:
            refused += 1
            resize(kube, 20)

    assert await actuator.size(MODEL) == 4
    api.before = intervene
    assert await actuator.resize(MODEL, wanted, OLD) == then
    assert (refused, replicas_of(kube)) == (1, then)


async def test_a_controller_that_writes_between_two_requests_only_makes_for_another_try(
    kube: KubeSpace, api: GatedApi, actuator: KubernetesActuator
) -> None:
    left = 3

    async def count_pods(call: Call) -> None:
        nonlocal left
        if call.method in ("PATCH", "PUT") and left:
            left -= 1
            status = {"status": {"observedGeneration": left + 1}}
            path = f"apis/apps/v1/namespaces/{kube.name}/deployments/{MODEL}/status"
            assert kube.server.admin.patch(path, json=status, headers=MERGE).is_success

    api.before = count_pods
    assert await actuator.resize(MODEL, 3, OLD) == 3
    assert (left, replicas_of(kube)) == (0, 3)


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
async def test_a_leader_paused_at_any_request_is_fenced_once_another_has_written(
    kube: KubeSpace, config: Path, before: bool
) -> None:
    for stop in range(10):
        kube.delete("Deployment", MODEL)
        kube.create(workload_json(4))
        gate, old, new = Gate(), GatedApi(find_config(config)), GatedApi(find_config(config))
        if before:
            old.before = gate
        else:
            old.after = gate
        stale = asyncio.create_task(sizing(kube, old).resize(MODEL, 2, OLD))
        for _ in range(stop):
            if await gate.stopped(stale):
                gate.let_on()
        was_stopped = await gate.stopped(stale)
        if was_stopped:
            done = replicas_of(kube) == 2
            assert await sizing(kube, new).resize(MODEL, 9, NEW) == 9
            while await gate.stopped(stale):
                gate.let_on()
            (answer,) = await asyncio.gather(stale, return_exceptions=True)
            assert answer == 2 if done else isinstance(answer, ActuatorError) and answer.fenced
            assert replicas_of(kube) == 9
        await old.close()
        await new.close()
        if not was_stopped:
            break
    assert stop == 4  # it had been stopped at other autoscalers, reading, mark and size


async def test_two_that_resize_at_once_again_and_again_lose_no_larger_epoch(kube: KubeSpace, config: Path) -> None:
    apis = [GatedApi(find_config(config)) for _ in range(2)]
    older, newer = (sizing(kube, api) for api in apis)
    for round_ in range(5):
        answers = await asyncio.gather(
            older.resize(MODEL, 50, OLD), newer.resize(MODEL, 5 + round_, NEW), return_exceptions=True
        )
        assert answers[1] == 5 + round_
        assert replicas_of(kube) == 5 + round_
    assert isinstance(answers[0], ActuatorError)
    assert answers[0].fenced
    for api in apis:
        await api.close()


def scaler(version: str, target: str) -> dict[str, Any]:
    return {
        "apiVersion": f"autoscaling/{version}",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": f"hpa-{target}"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target},
            "maxReplicas": 10,
        },
    }


async def test_a_horizontal_pod_autoscaler_of_any_version_is_seen(
    kube: KubeSpace, actuator: KubernetesActuator
) -> None:
    kube.create(scaler("v1", "something-else"))
    path = f"apis/autoscaling/v2beta2/namespaces/{kube.name}/horizontalpodautoscalers"
    answer = kube.server.admin.post(path, json=scaler("v2beta2", MODEL))
    assert answer.is_success, answer.text
    with structlog.testing.capture_logs() as logs:
        assert await actuator.size(MODEL) == 4
        with pytest.raises(ActuatorError, match=f"HorizontalPodAutoscaler hpa-{MODEL} scales Deployment"):
            await actuator.resize(MODEL, 9, OLD)
    assert [log["event"] for log in logs] == ["second_autoscaler"]
    assert replicas_of(kube) == 4


async def test_a_deployment_that_is_not_there_yet_is_scaled_once_it_is(
    kube: KubeSpace, actuator: KubernetesActuator
) -> None:
    kube.delete("Deployment", MODEL)
    for call in (actuator.size(MODEL), actuator.resize(MODEL, 5, OLD)):
        with pytest.raises(ActuatorError, match=f"there is no Deployment {kube.name}/{MODEL}"):
            await call
    kube.create(workload_json(2))
    assert await actuator.resize(MODEL, 5, OLD) == 5


async def test_while_the_server_is_away_or_frozen_nothing_is_written_and_then_all_is_as_before(
    kube: KubeSpace, kube_server: KubeServer, actuator: KubernetesActuator, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await actuator.resize(MODEL, 6, NEW) == 6
    monkeypatch.setattr(module, "CALL_SECONDS", 0.5)
    kube_server.freeze()
    try:
        with pytest.raises(ActuatorError, match="no answer of the API server"):
            await actuator.resize(MODEL, 3, NEW)
    finally:
        kube_server.thaw()
    monkeypatch.undo()
    kube_server.stop()
    try:
        for call in (actuator.size(MODEL), actuator.resize(MODEL, 3, NEW)):
            with pytest.raises(ActuatorError, match="the API server cannot be reached"):
                await call
    finally:
        kube_server.start()
    # The request that was frozen may have been done after all; it was a leader's wish.
    assert await actuator.size(MODEL) in (3, 6)
    with pytest.raises(ActuatorError) as caught:
        await actuator.resize(MODEL, 3, OLD)
    assert caught.value.fenced
    assert await actuator.resize(MODEL, 8, NEW) == 8
