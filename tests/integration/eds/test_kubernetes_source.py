"""The Kubernetes source against a real API server, with the rights that the manifests grant."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from copydesk.eds.kubernetes import course
from copydesk.eds.kubernetes.follower import Page
from copydesk.eds.kubernetes.objects import Bookmark, EndpointSlice, WatchEvent
from copydesk.kube import api
from copydesk.kube.api import Api, decode, find_config
from tests.fixtures.kube import KubeServer, KubeSpace
from tests.fixtures.kube_objects import pod_json, service_json, slice_json
from tests.fixtures.kube_source import following
from tests.fixtures.until import until


async def test_services_and_slices_are_created_updated_and_deleted(kube: KubeSpace, tmp_path: Path) -> None:
    async with following(kube.config(tmp_path / "config")) as stated:
        await until(lambda: stated.pods() is not None)
        kube.create(service_json())
        kube.create(slice_json("s1", pod_json("a", "10.0.0.1", ready=True, zone="z1", node="n1")))
        await stated.until(a="ready")
        pods = stated.pods()
        assert pods is not None
        assert (pods["a"].host, pods["a"].port, pods["a"].zone, pods["a"].node) == ("10.0.0.1", 9000, "z1", "n1")
        kube.create(slice_json("s2", pod_json("b", "10.0.0.2", ready=False)))
        await stated.until(a="ready", b="warming")
        kube.put(slice_json("s2", pod_json("b", "10.0.0.2", ready=True)))
        await stated.until(a="ready", b="ready")
        kube.put(slice_json("s2", pod_json("b", "10.0.0.2", ready=False, serving=True, terminating=True)))
        await stated.until(a="ready", b="draining")
        kube.delete("EndpointSlice", "s2")
        await stated.until(a="ready")
        kube.delete("Service", "gec")
        await stated.until()
        assert [reason for _, reason in stated.relisted] == ["start", "start"]
        assert stated.failed == []


async def test_a_slice_that_is_renamed_or_given_to_another_service_moves_its_pods(
    kube: KubeSpace, tmp_path: Path
) -> None:
    kube.create(service_json("gec"))
    kube.create(service_json("chat"))
    pod = pod_json("a", ready=True)
    kube.create(slice_json("s1", pod, owner="gec"))
    async with following(kube.config(tmp_path / "config")) as stated:
        await stated.until(a="ready")
        kube.create(slice_json("s2", pod, owner="gec"))
        kube.delete("EndpointSlice", "s1")
        kube.put(slice_json("s2", pod, pod_json("b", "10.0.0.2"), owner="gec"))
        await stated.until(a="ready", b="ready")
        assert all("a" in {pod.id for pod in listed.endpoints["gec"]} for listed in stated.lists)
        kube.put(slice_json("s2", pod, owner="chat"))
        await stated.until("chat", a="ready")
        await stated.until("gec")


async def test_a_service_that_loses_its_label_is_none_of_ours_any_more(kube: KubeSpace, tmp_path: Path) -> None:
    kube.create(service_json())
    kube.create(slice_json("s1", pod_json("a")))
    async with following(kube.config(tmp_path / "config")) as stated:
        await stated.until(a="ready")
        kube.put(service_json(labels={}))
        await stated.until()
        assert "gec" not in stated.lists[-1].endpoints


async def test_services_are_chosen_by_the_selector_and_may_name_their_model_by_an_annotation(
    kube: KubeSpace, tmp_path: Path
) -> None:
    annotations = {"copydesk/model": "gec", "copydesk/protocol": "openai", "copydesk/capacity": "64"}
    kube.create(service_json("vllm", labels={"app": "vllm"}, annotations=annotations))
    kube.create(service_json("other"))
    kube.create(slice_json("s1", pod_json("a"), owner="vllm"))
    kube.create(slice_json("s2", pod_json("b", "10.0.0.2"), owner="other"))
    async with following(kube.config(tmp_path / "config"), selector="app=vllm") as stated:
        await stated.until(a="ready")
        assert set(stated.lists[-1].endpoints) == {"gec"}
        assert stated.lists[-1].endpoints["gec"][0].capacity == 64


async def test_all_namespaces_can_be_followed_by_who_may(
    kube: KubeSpace, kube_server: KubeServer, tmp_path: Path
) -> None:
    other = kube_server.space(f"{kube.name}-b")
    admin = kube_server.admin.headers["Authorization"].removeprefix("Bearer ")
    for number, space in enumerate((kube, other)):
        space.create(service_json("x", labels={"copydesk/model": kube.name}))
        space.create(slice_json("s", pod_json(f"p{number}", f"10.0.0.{number}"), owner="x"))
    async with following(kube.config(tmp_path / "config", token=admin), namespace="*") as stated:
        await stated.until(kube.name, p0="ready", p1="ready")


async def test_what_does_not_fit_on_a_page_is_listed_all_the_same(kube: KubeSpace, tmp_path: Path) -> None:
    kube.create(service_json())
    for number in range(5):
        kube.create(slice_json(f"s{number}", pod_json(f"p{number}", f"10.0.0.{number}")))
    async with following(kube.config(tmp_path / "config"), page=2) as stated:
        await stated.until(**{f"p{number}": "ready" for number in range(5)})
        assert len(stated.lists) == 1


T = TypeVar("T")


class Gate:
    """Where requests wait, as those of a frozen process would."""

    def __init__(self) -> None:
        self.waiting = 0
        self._opened = asyncio.Event()

    def open(self) -> None:
        self._opened.set()

    async def pass_through(self) -> None:
        self.waiting += 1
        await self._opened.wait()


def gated_watches(gate: Gate) -> type[Api]:
    class GatedApi(Api):
        @asynccontextmanager
        async def watch(self, path: str, params: Mapping[str, str]) -> AsyncIterator[AsyncIterator[list[bytes]]]:
            await gate.pass_through()
            async with super().watch(path, params) as lines:
                yield lines

    return GatedApi


def gated_next_pages(gate: Gate) -> type[Api]:
    class GatedApi(Api):
        async def get(self, path: str, type_: type[T], params: Mapping[str, str] | None = None) -> T:
            if params is not None and "continue" in params:
                await gate.pass_through()
            return await super().get(path, type_, params)

    return GatedApi


async def test_a_watch_from_a_revision_that_was_compacted_away_is_a_new_list(
    kube: KubeSpace, kube_server: KubeServer, tmp_path: Path
) -> None:
    kube.create(service_json())
    kube.create(slice_json("s1", pod_json("a"), pod_json("b", "10.0.0.2")))
    gate = Gate()
    async with following(kube.config(tmp_path / "config"), api=gated_watches(gate)) as stated:
        await stated.until(a="ready", b="ready")
        await until(lambda: gate.waiting == 2)
        kube.put(slice_json("s1", pod_json("b", "10.0.0.2", ready=False)))
        kube.create(slice_json("s2", pod_json("c", "10.0.0.3")))
        kube_server.compact()
        kube_server.stop()  # its cache would remember
        kube_server.start()
        seen = len(stated.lists)
        gate.open()
        await stated.until(b="warming", c="ready")
        assert ("endpointslices", "expired") in stated.relisted
        # The new list is compared with what was known: nobody leaves that is still there.
        assert all(listed.endpoints["gec"] for listed in stated.lists[seen:])


async def test_a_list_that_was_compacted_away_between_two_pages_begins_anew(
    kube: KubeSpace, kube_server: KubeServer, tmp_path: Path
) -> None:
    kube.create(service_json())
    for number in range(3):
        kube.create(slice_json(f"s{number}", pod_json(f"p{number}", f"10.0.0.{number}")))
    gate = Gate()
    async with following(kube.config(tmp_path / "config"), api=gated_next_pages(gate), page=2) as stated:
        await until(lambda: gate.waiting == 1)
        kube.delete("EndpointSlice", "s0")
        kube_server.compact()
        gate.open()
        await stated.until(p1="ready", p2="ready")
        assert ("endpointslices", "expired") in stated.relisted
        assert stated.failed == []


async def test_while_the_server_is_away_the_last_state_is_held_and_stale_and_then_followed_again(
    kube: KubeSpace, kube_server: KubeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(course, "LONGEST_PAUSE", 1.0)
    kube.create(service_json())
    kube.create(slice_json("s1", pod_json("a")))
    async with following(kube.config(tmp_path / "config")) as stated:
        await stated.until(a="ready")
        kube_server.stop()
        await until(lambda: stated.is_stale)
        assert stated.states() == {"a": "ready"}
        kube_server.start()
        kube.put(slice_json("s1", pod_json("a"), pod_json("b", "10.0.0.2")))
        await until(lambda: not stated.is_stale, timeout=30)
        await stated.until(a="ready", b="ready")


async def test_a_frozen_server_is_noticed_by_its_silence(
    kube: KubeSpace, kube_server: KubeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "ANSWER_SECONDS", 1.0)
    kube.create(service_json())
    kube.create(slice_json("s1", pod_json("a")))
    async with following(kube.config(tmp_path / "config"), silence=2.0) as stated:
        await stated.until(a="ready")
        kube_server.freeze()
        try:
            await until(lambda: stated.is_stale, timeout=30)
            assert stated.states() == {"a": "ready"}
        finally:
            kube_server.thaw()
        await until(lambda: not stated.is_stale, timeout=30)


async def test_a_quiet_watch_says_a_bookmark_before_the_server_ends_it(kube: KubeSpace, tmp_path: Path) -> None:
    config = kube.config(tmp_path / "config")
    path = f"apis/discovery.k8s.io/v1/namespaces/{kube.name}/endpointslices"
    client = Api(find_config(config))
    version = (await client.get(path, Page[EndpointSlice])).metadata.resource_version
    params = {"resourceVersion": version, "allowWatchBookmarks": "true", "timeoutSeconds": "5"}
    seen: list[WatchEvent] = []
    async with client.watch(path, params) as batches:
        # A server that has seen no event of a resource since it was started sends no bookmarks of it.
        kube.create(slice_json("s1", pod_json("a")))
        async for lines in batches:
            seen += [decode(line, WatchEvent) for line in lines]
    await client.close()
    assert [event.type for event in seen][:2] == ["ADDED", "BOOKMARK"]
    assert int(decode(seen[1].object, Bookmark).metadata.resource_version) > int(version)
