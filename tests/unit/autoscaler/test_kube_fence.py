"""The fence: a leader that was paused, wherever that was, does not resize over its successor."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.autoscaler.actuator import ActuatorError
from copydesk.autoscaler.kubernetes.actuator import KubernetesActuator
from copydesk.autoscaler.kubernetes.fence import EPOCH, Reading, Step, Wish, claim, next_step, read_workload
from copydesk.autoscaler.kubernetes.objects import Workload
from copydesk.autoscaler.kubernetes.target import Kind, Target
from copydesk.kube.lease import LARGEST_EPOCH
from tests.fixtures.kube_memory import Gate, MemoryApi, MemoryServer

TARGETS = {"gec": Target("prod", Kind.DEPLOYMENT, "gec")}
OLD, NEW = 100, 200


@pytest.mark.parametrize(
    ("reading", "wish", "step"),
    [
        (Reading("7", NEW, 4), Wish(5, OLD), Step.FENCED),
        (Reading("7", NEW, 0), Wish(5, OLD), Step.FENCED),
        (Reading("7", 0, 0), Wish(5, OLD), Step.OFF),
        (Reading("7", 0, 4), Wish(5, OLD), Step.CLAIM),
        (Reading("7", OLD, 5), Wish(5, NEW), Step.CLAIM),
        (Reading("7", OLD, 5), Wish(5, OLD), Step.KEEP),
        (Reading("7", OLD, 4), Wish(5, OLD), Step.WRITE),
        (Reading("7", OLD, 4), Wish(5, OLD, told=3), Step.WRITE),
        (Reading("7", OLD, 4), Wish(3, OLD, told=4), Step.WRITE),
        (Reading("7", OLD, 20), Wish(3, OLD, told=4), Step.MOVED),
        (Reading("7", OLD, 4), Wish(3, OLD), Step.WRITE),
    ],
)
def test_each_step_follows_from_what_was_read(reading: Reading, wish: Wish, step: Step) -> None:
    assert next_step(reading, wish) is step


@pytest.mark.parametrize(
    ("text", "epoch"),
    [
        ("1790000000000", 1_790_000_000_000),
        (str(LARGEST_EPOCH), LARGEST_EPOCH),
        (str(LARGEST_EPOCH + 1), 0),
        ("9" * 5_000, 0),
        ("-3", 0),
        ("soon", 0),
        ("", 0),
    ],
)
def test_an_epoch_that_no_leader_can_have_had_counts_as_none(text: str, epoch: int) -> None:
    body = {"metadata": {"resourceVersion": "3", "annotations": {EPOCH: text}}, "spec": {"replicas": 2}}
    assert read_workload(msgspec.convert(body, Workload)) == Reading("3", epoch, 2)


def test_the_mark_replaces_no_other_annotation_and_no_label() -> None:
    change = msgspec.json.decode(msgspec.json.encode(claim(Reading("7", 0, 4), NEW)))
    assert change == {"metadata": {"resourceVersion": "7", "annotations": {EPOCH: str(NEW)}}}


async def resized(actuator: KubernetesActuator, replicas: int, epoch: int) -> str:
    """Resize, and say in a word how that went."""
    try:
        return str(await actuator.resize("gec", replicas, epoch))
    except ActuatorError as error:
        return "fenced" if error.fenced else error.reason


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("claimed", [True, False], ids=["second-write", "first-write"])
@pytest.mark.parametrize("wanted", [9, 4], ids=["resizes", "keeps"])
async def test_a_leader_paused_at_any_request_is_fenced_once_another_has_written(
    before: bool, claimed: bool, wanted: int
) -> None:
    paused_at = []
    for stop in range(10):
        server = MemoryServer()
        path = server.deploy("gec", 4, **({EPOCH: str(OLD)} if claimed else {}))
        gate = Gate()
        api = MemoryApi(server, "old")
        stale = asyncio.create_task(resized(KubernetesActuator(api, TARGETS), 2, OLD))
        (api.before, api.after) = (gate, api.after) if before else (api.before, gate)
        for _ in range(stop):
            if await gate.stopped(stale):
                gate.let_on()
        if not await gate.stopped(stale):
            break
        paused_at.append(server.calls[-1].method if not before and server.calls else "")
        done = [call.path.endswith("/scale") for call, _ in server.log]
        assert await resized(KubernetesActuator(MemoryApi(server, "new"), TARGETS), wanted, NEW) == str(wanted)
        while await gate.stopped(stale):
            gate.let_on()
        # If its write was in before, only the answer was still to come.
        assert await stale == ("2" if any(done) else "fenced")
        assert server.size(path) == wanted
    # Autoscalers, reading, mark and size: the pause was at each of them.
    assert len(paused_at) == 3 + (not claimed)


@given(
    st.lists(st.integers(1, 9), min_size=3, max_size=3),
    st.lists(st.integers(0, 3), max_size=60),
)
def test_however_three_leaders_are_interleaved_no_epoch_writes_after_a_larger_one(
    wanted: list[int], turns: list[int]
) -> None:
    asyncio.run(interleave(wanted, turns))


async def interleave(wanted: list[int], turns: list[int]) -> None:
    server = MemoryServer()
    path = server.deploy("gec", 5)
    gates = [Gate() for _ in wanted]
    epochs = {str(index): 100 + index for index in range(len(wanted))}
    tasks = [
        asyncio.create_task(
            resized(KubernetesActuator(MemoryApi(server, str(i), before=gate), TARGETS), size, 100 + i)
        )
        for i, (size, gate) in enumerate(zip(wanted, gates, strict=True))
    ]
    for turn in [*turns, *(i for i in range(3) for _ in range(30))]:
        if turn == len(wanted):
            server.touch(path)
        elif await gates[turn].stopped(tasks[turn]):
            gates[turn].let_on()
    results = await asyncio.gather(*tasks)
    written = [epochs[call.client] for call, _ in server.log]
    assert written == sorted(written)
    # The one with the largest epoch had its way, unless others wrote at the same time again and again.
    if "at the same time" not in results[-1]:
        assert results[-1] == str(wanted[-1])
        assert server.size(path) == wanted[-1]
