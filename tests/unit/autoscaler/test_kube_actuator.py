"""Sizing workloads: what is said and done where the API server, or somebody else, does not do as asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import structlog

from copydesk.autoscaler.actuator import ActuatorError
from copydesk.autoscaler.kubernetes import actuator as module
from copydesk.autoscaler.kubernetes import rivals
from copydesk.autoscaler.kubernetes.actuator import KubernetesActuator
from copydesk.autoscaler.kubernetes.fence import EPOCH
from copydesk.autoscaler.kubernetes.target import Kind, Target
from copydesk.kube.trouble import KubernetesError, NonsenseError, RefusedError, UnreachableError
from tests.fixtures.kube_memory import AUTOSCALERS, Call, MemoryApi, MemoryServer

TARGETS = {
    "gec": Target("prod", Kind.DEPLOYMENT, "gec"),
    "chat": Target("prod", Kind.DEPLOYMENT, "chat-large"),
    "gone": Target("prod", Kind.DEPLOYMENT, "gone"),
}
EPOCH_NOW = 1_790_000_000_000


@pytest.fixture
def server() -> MemoryServer:
    server = MemoryServer()
    server.deploy("chat-large", 2)
    return server


@pytest.fixture
def path(server: MemoryServer) -> str:
    return server.deploy("gec", 4)


@pytest.fixture
def api(server: MemoryServer) -> MemoryApi:
    return MemoryApi(server)


@pytest.fixture
def actuator(api: MemoryApi) -> KubernetesActuator:
    return KubernetesActuator(api, TARGETS)


def raising(error: Exception, method: str, ending: str = "") -> Callable[[Call], Awaitable[None]]:
    """A hook that gives this answer to such requests."""

    async def hook(call: Call) -> None:
        if call.method == method and call.path.endswith(ending):
            raise error

    return hook


async def test_each_model_has_a_workload_of_its_own(
    server: MemoryServer, path: str, actuator: KubernetesActuator
) -> None:
    assert (await actuator.size("gec"), await actuator.size("chat")) == (4, 2)
    assert await actuator.resize("chat", 6, EPOCH_NOW) == 6
    assert (await actuator.size("gec"), await actuator.size("chat")) == (4, 6)
    assert server.size(path) == 4


async def test_a_size_that_is_right_is_marked_once_and_then_only_read(
    server: MemoryServer, path: str, actuator: KubernetesActuator
) -> None:
    for _ in range(3):
        assert await actuator.resize("gec", 4, EPOCH_NOW) == 4
    assert [call.method for call, _ in server.log] == ["PATCH"]
    assert server.objects[path]["metadata"]["annotations"] == {EPOCH: str(EPOCH_NOW)}


async def test_a_model_without_a_workload_and_a_size_below_one_are_refused(
    server: MemoryServer, path: str, actuator: KubernetesActuator
) -> None:
    with pytest.raises(ActuatorError, match="which workload runs this model"):
        await actuator.size("unheard-of")
    with pytest.raises(ActuatorError, match="not scaled to 0"):
        await actuator.resize("gec", 0, EPOCH_NOW)
    assert server.log == []


@pytest.mark.parametrize("size", [-1, 2**31, 10**30])
async def test_a_size_that_no_workload_can_have_is_no_size(
    server: MemoryServer, path: str, actuator: KubernetesActuator, size: int
) -> None:
    server.objects[path]["spec"]["replicas"] = size
    with pytest.raises(ActuatorError, match=f"Deployment prod/gec cannot ask for {size} pods"):
        await actuator.size("gec")


async def test_a_model_switched_off_by_hand_stays_off_until_it_is_switched_on_by_hand(
    server: MemoryServer, path: str, actuator: KubernetesActuator
) -> None:
    server.scale(path, 0)
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            assert await actuator.size("gec") == 0
            assert await actuator.resize("gec", 5, EPOCH_NOW) == 0
    assert [log["event"] for log in logs] == ["model_switched_off"]
    server.scale(path, 1)
    assert await actuator.resize("gec", 5, EPOCH_NOW) == 5


async def test_a_model_switched_off_between_reading_and_writing_stays_off(
    server: MemoryServer, path: str, api: MemoryApi, actuator: KubernetesActuator
) -> None:
    async def switch_off(call: Call) -> None:
        if call.method == "PUT":
            server.scale(path, 0)

    api.before = switch_off
    assert await actuator.resize("gec", 9, EPOCH_NOW) == 0


async def test_controllers_that_write_at_the_same_time_are_read_again(
    server: MemoryServer, path: str, api: MemoryApi, actuator: KubernetesActuator
) -> None:
    left = 3

    async def write(call: Call) -> None:
        nonlocal left
        if call.method in ("PATCH", "PUT") and left:
            left -= 1
            server.touch(path)

    api.before = write
    assert await actuator.resize("gec", 9, EPOCH_NOW) == 9
    assert server.size(path) == 9


async def test_who_is_outpaced_again_and_again_gives_up(
    server: MemoryServer, path: str, api: MemoryApi, actuator: KubernetesActuator
) -> None:
    async def write(call: Call) -> None:
        if call.method == "PUT":
            server.touch(path)

    api.before = write
    with pytest.raises(ActuatorError, match="others have written Deployment prod/gec") as caught:
        await actuator.resize("gec", 9, EPOCH_NOW)
    assert not caught.value.fenced
    assert server.size(path) == 4
    assert sum(call.method == "PUT" for call in server.calls) == module.TRIES


@pytest.mark.parametrize(("wanted", "then"), [(3, 20), (25, 25)], ids=["a-shrink-does-not", "growth-does"])
async def test_what_was_decided_on_a_size_that_somebody_has_changed_since_counts_only_if_it_grows(
    server: MemoryServer, path: str, actuator: KubernetesActuator, wanted: int, then: int
) -> None:
    assert await actuator.size("gec") == 4
    server.scale(path, 20)
    assert await actuator.resize("gec", wanted, EPOCH_NOW) == then
    assert server.size(path) == then
    # Now it has been told, and may mean it.
    assert await actuator.resize("gec", 18, EPOCH_NOW) == 18


@pytest.mark.parametrize("method", ["GET", "PATCH", "PUT"])
@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (RefusedError(404, "not found"), "there is no Deployment prod/gec"),
        (
            RefusedError(403, 'cannot do it to "deployments/scale"'),
            'a right or a valid token is missing.*"deploym',
        ),
        (RefusedError(401, "Unauthorized"), "a right or a valid token is missing.*401"),
        (RefusedError(429, "too many requests", 5.0), "cannot be read or resized.*429 too many"),
        (RefusedError(500, "etcd"), "cannot be read or resized.*500 etcd"),
        (UnreachableError("ConnectError"), "cannot be reached: ConnectError"),
        (NonsenseError("Workload: missing field"), "no answer of an API server"),
    ],
)
async def test_whatever_is_refused_is_said_in_a_sentence_and_nothing_is_shrunk(
    server: MemoryServer, path: str, api: MemoryApi, method: str, error: KubernetesError, sentence: str
) -> None:
    actuator = KubernetesActuator(api, TARGETS)
    api.before = raising(error, method)
    with pytest.raises(ActuatorError, match=sentence) as caught:
        await actuator.resize("gec", 3, EPOCH_NOW)
    assert (caught.value.model, caught.value.fenced, server.size(path)) == ("gec", False, 4)
    if method == "GET":
        with pytest.raises(ActuatorError, match=sentence):
            await actuator.size("gec")


@pytest.mark.parametrize("spec", [{}, {"replicas": None}, {"replicas": "many"}])
async def test_a_workload_that_says_no_size_is_not_taken_for_one_of_none(
    server: MemoryServer, path: str, actuator: KubernetesActuator, spec: dict[str, Any]
) -> None:
    server.objects[path]["spec"] = spec
    with pytest.raises(ActuatorError, match="no answer of an API server"):
        await actuator.resize("gec", 3, EPOCH_NOW)
    assert server.log == []


@pytest.mark.parametrize("method", ["GET", "PATCH", "PUT"])
async def test_a_server_that_says_nothing_is_not_waited_for(
    server: MemoryServer,
    path: str,
    api: MemoryApi,
    actuator: KubernetesActuator,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
) -> None:
    async def hang(call: Call) -> None:
        if call.method == method:
            await asyncio.Event().wait()

    monkeypatch.setattr(module, "CALL_SECONDS", 0.02)
    api.before = hang
    with pytest.raises(ActuatorError, match="no answer of the API server"):
        await actuator.resize("gec", 3, EPOCH_NOW)
    assert server.size(path) == 4


@pytest.mark.parametrize("method", ["PATCH", "PUT"])
async def test_a_write_whose_answer_was_lost_is_found_done_the_next_time(
    server: MemoryServer, path: str, api: MemoryApi, actuator: KubernetesActuator, method: str
) -> None:
    assert await actuator.size("gec") == 4
    lost = raising(UnreachableError("ReadError"), method)
    api.after = lost
    with pytest.raises(ActuatorError, match="ReadError"):
        await actuator.resize("gec", 3, EPOCH_NOW)
    writes = len(server.log)
    api.after = raising(UnreachableError("never"), "DELETE")
    assert await actuator.resize("gec", 3, EPOCH_NOW) == 3
    assert len(server.log) == writes + (method == "PATCH")


async def test_a_server_that_does_not_keep_the_epoch_is_not_written_to(
    server: MemoryServer, path: str, actuator: KubernetesActuator
) -> None:
    server.keeps_annotations = False
    with pytest.raises(ActuatorError, match="nothing would be fenced"):
        await actuator.resize("gec", 9, EPOCH_NOW)
    assert server.size(path) == 4


async def test_the_larger_epoch_is_told_to_whoever_stands_for_election(
    server: MemoryServer, path: str, api: MemoryApi
) -> None:
    met: list[int] = []
    await KubernetesActuator(api, TARGETS).resize("gec", 5, EPOCH_NOW + 7)
    with pytest.raises(ActuatorError, match=f"epoch {EPOCH_NOW + 7}, has resized Deployment prod/gec") as caught:
        await KubernetesActuator(api, TARGETS, met.append).resize("gec", 6, EPOCH_NOW)
    assert caught.value.fenced
    assert (met, server.size(path)) == ([EPOCH_NOW + 7], 5)


def scaler(name: str, kind: str = "Deployment", target: str = "gec") -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"scaleTargetRef": {"kind": kind, "name": target}}}


async def test_a_second_autoscaler_is_named_once_and_not_fought(
    server: MemoryServer, path: str, actuator: KubernetesActuator, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.autoscalers = [scaler("other", target="chat-small"), scaler("hpa")]
    with structlog.testing.capture_logs() as logs:
        for _ in range(2):
            assert await actuator.size("gec") == 4
            with pytest.raises(ActuatorError, match="HorizontalPodAutoscaler hpa scales Deployment prod/gec too"):
                await actuator.resize("gec", 9, EPOCH_NOW)
    assert [(log["event"], log["horizontal_pod_autoscaler"]) for log in logs] == [("second_autoscaler", "hpa")]
    assert server.log == []
    # All of a namespace are read once in a while, not for every size.
    assert sum(call.path == AUTOSCALERS for call in server.calls) == 1
    server.autoscalers = [scaler("hpa", "StatefulSet")]
    monkeypatch.setattr(rivals, "LOOK_SECONDS", 0.0)
    assert await actuator.resize("gec", 9, EPOCH_NOW) == 9


@pytest.mark.parametrize(
    ("error", "warnings"),
    [(RefusedError(403, "cannot list"), ["second_autoscaler_unseen"]), (RefusedError(503, "not now"), [])],
)
async def test_where_other_autoscalers_cannot_be_seen_scaling_goes_on(
    path: str,
    api: MemoryApi,
    actuator: KubernetesActuator,
    monkeypatch: pytest.MonkeyPatch,
    error: RefusedError,
    warnings: list[str],
) -> None:
    monkeypatch.setattr(rivals, "LOOK_SECONDS", 0.0)
    api.before = raising(error, "GET", AUTOSCALERS)
    with structlog.testing.capture_logs() as logs:
        assert await actuator.size("gec") == 4
        assert await actuator.resize("gec", 9, EPOCH_NOW) == 9
    assert [log["event"] for log in logs] == warnings
