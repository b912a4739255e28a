"""What discovery may do in a cluster: what its manifest grants is enough, and what is missing is said."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
import structlog

from copydesk.kube.api import Api, find_config
from copydesk.kube.elector import Candidacy, LeaseLeadership
from tests.fixtures.kube import KubeServer, KubeSpace
from tests.fixtures.kube_objects import pod_json, service_json, slice_json
from tests.fixtures.kube_source import Stated, following
from tests.fixtures.until import until


def role(kube: KubeSpace, *granted: tuple[str, str, list[str]]) -> dict[str, Any]:
    rules = [{"apiGroups": [group], "resources": [resource], "verbs": verbs} for group, resource, verbs in granted]
    return {**kube.get("Role", "copydesk-eds"), "rules": rules}


async def test_the_rights_of_the_manifest_are_enough_and_each_of_them_is_needed(
    kube: KubeSpace, tmp_path: Path
) -> None:
    kube.create(service_json())
    kube.create(slice_json("s1", pod_json("a")))
    manifest = kube.get("Role", "copydesk-eds")
    config = kube.config(tmp_path / "config")
    async with following(config) as stated:
        await stated.until(a="ready")
        assert stated.failed == []
    needed = [(rule["resources"][0], verb) for rule in manifest["rules"][:2] for verb in rule["verbs"]]
    assert needed == [(name, verb) for name in ("services", "endpointslices") for verb in ("list", "watch")]
    for resource, verb in needed:
        kube.put({**manifest, "rules": [without(verb, rule, resource) for rule in manifest["rules"]]})
        with structlog.testing.capture_logs() as logs:
            async with following(config) as stated:
                await until(partial(has_failed, stated, resource))
        denied = [str(log["problem"]) for log in logs if log["event"] == "kubernetes_denied"]
        assert any(f'cannot {verb} resource "{resource}"' in problem for problem in denied)


def without(verb: str, rule: dict[str, Any], resource: str) -> dict[str, Any]:
    verbs = [each for each in rule["verbs"] if rule["resources"] != [resource] or each != verb]
    return {**rule, "verbs": verbs}


def has_failed(stated: Stated, resource: str) -> bool:
    return (resource, "refused") in stated.failed


async def test_a_right_that_is_granted_later_is_used(kube: KubeSpace, tmp_path: Path) -> None:
    manifest = kube.get("Role", "copydesk-eds")
    kube.create(service_json())
    kube.create(slice_json("s1", pod_json("a")))
    kube.put(role(kube, ("", "services", ["list", "watch"])))
    async with following(kube.config(tmp_path / "config")) as stated:
        await until(lambda: ("endpointslices", "refused") in stated.failed)
        assert stated.lists == []
        kube.put(manifest)
        await stated.until(a="ready")
        await until(lambda: not stated.is_stale)


async def test_the_lease_takes_the_rights_of_the_manifest_and_no_other_lease_is_open_to_it(
    kube: KubeSpace, tmp_path: Path
) -> None:
    config = kube.config(tmp_path / "config")
    mine = LeaseLeadership(Api(find_config(config)), Candidacy(kube.name, "copydesk-eds", "me", 6.0))
    other = LeaseLeadership(Api(find_config(config)), Candidacy(kube.name, "kube-scheduler", "me", 6.0))
    loop = asyncio.get_running_loop()
    with structlog.testing.capture_logs() as logs:
        await mine.start(lambda: None)
        await other.start(lambda: None)
        await until(lambda: mine.is_leader(loop.time()) and any(log["event"] == "lease_denied" for log in logs))
        assert not other.is_leader(loop.time())
        await mine.close()
        await other.close()
    assert "holderIdentity" not in kube.get("Lease", "copydesk-eds")["spec"]


@pytest.mark.parametrize(
    "path",
    [
        "api/v1/namespaces/{}/secrets",
        "api/v1/namespaces/{}/pods",
        "api/v1/services",
        "apis/discovery.k8s.io/v1/endpointslices",
        "apis/coordination.k8s.io/v1/namespaces/{}/leases",
    ],
)
def test_nothing_else_is_granted(kube: KubeSpace, kube_server: KubeServer, path: str) -> None:
    headers = {"Authorization": f"Bearer {kube.token()}"}
    answer = httpx2.get(f"{kube_server.url}/{path.format(kube.name)}", headers=headers, verify=kube_server.tls)
    assert answer.status_code == 403


async def test_a_token_that_is_no_good_is_said_to_be(kube: KubeSpace, tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as logs:
        async with following(kube.config(tmp_path / "config", token="stale")) as stated:
            await until(lambda: len(stated.failed) >= 2)
            assert stated.lists == []
    assert any(log["event"] == "kubernetes_denied" and "401" in log["problem"] for log in logs)
