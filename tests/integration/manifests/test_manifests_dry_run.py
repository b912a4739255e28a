"""A real API server takes every object of the manifests (server-side dry run), and keeps every field of it.

The server is of version 1.20, so that two things are shown in another way. PodDisruptionBudgets are asked for as
policy/v1beta1, which has the same fields; policy/v1 is held against its schema only (tests/unit/manifests). What
the Prometheus operator brings is checked against small definitions of the test's own. There is no kubelet.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fixtures.kube import KubeServer
from tests.fixtures.manifests import OVERLAYS, Object, rendered
from tests.fixtures.until import until

CLUSTER_WIDE = {"Namespace": "namespaces", "PriorityClass": "priorityclasses", "RuntimeClass": "runtimeclasses"}
SPACE = "default"
"""Where objects are asked for: nothing is made of them, and the namespaces that they name are not there."""

OLDER = {"policy/v1": "policy/v1beta1"}
OPERATOR = {
    "servicemonitors": ("ServiceMonitor", "endpoints"),
    "podmonitors": ("PodMonitor", "podMetricsEndpoints"),
    "prometheusrules": ("PrometheusRule", "groups"),
}
_ENDPOINT = {
    "type": "object",
    "required": ["port"],
    "properties": {
        "port": {"type": "string"},
        "path": {"type": "string"},
        "interval": {"type": "string", "pattern": "^[0-9]+(ms|s|m|h)$"},
        "authorization": {
            "type": "object",
            "properties": {
                "type": {"type": "string"},
                "credentials": {
                    "type": "object",
                    "required": ["key"],
                    "properties": {"name": {"type": "string"}, "key": {"type": "string"}},
                },
            },
        },
        "relabelings": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"targetLabel": {"type": "string"}, "replacement": {"type": "string"}},
            },
        },
    },
}
_WORDS = {"type": "object", "additionalProperties": {"type": "string"}}
_GROUP = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string"},
        "interval": {"type": "string"},
        "rules": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["expr"],
                "properties": {
                    **{key: {"type": "string"} for key in ("record", "alert", "expr", "for", "keep_firing_for")},
                    "labels": _WORDS,
                    "annotations": _WORDS,
                },
            },
        },
    },
}
_SPEC = {
    "selector": {"type": "object", "properties": {"matchLabels": _WORDS}},
    "namespaceSelector": {
        "type": "object",
        "properties": {"matchNames": {"type": "array", "items": {"type": "string"}}},
    },
}
_LISTS = {"endpoints": _ENDPOINT, "podMetricsEndpoints": _ENDPOINT, "groups": _GROUP}


def _definition(plural: str) -> Object:
    """What the operator defines, as far as the manifests use it: a field that is not here is dropped."""
    kind, listed = OPERATOR[plural]
    spec = {**({} if listed == "groups" else _SPEC), listed: {"type": "array", "items": _LISTS[listed]}}
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "required": [listed], "properties": spec}},
    }
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.monitoring.coreos.com"},
        "spec": {
            "group": "monitoring.coreos.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind},
            "versions": [version],
        },
    }


@pytest.fixture
async def server(kube_server: KubeServer) -> KubeServer:
    """The server, with the operator's definitions."""
    kube_server.start()
    definitions = "apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for plural in OPERATOR:
        kube_server.admin.post(definitions, json=_definition(plural))  # 409: another test has made it
    await until(
        lambda: all(
            kube_server.admin.get(f"apis/monitoring.coreos.com/v1/{plural}").is_success for plural in OPERATOR
        )
    )
    return kube_server


def _path(manifest: Object) -> str:
    version = manifest["apiVersion"]
    root = f"apis/{version}" if "/" in version else f"api/{version}"
    kind = manifest["kind"]
    if kind in CLUSTER_WIDE:
        return f"{root}/{CLUSTER_WIDE[kind]}"
    plural = kind.lower()[:-1] + "ies" if kind.endswith("y") else f"{kind.lower()}s"
    return f"{root}/namespaces/{SPACE}/{plural}"


def _asked(server: KubeServer, manifest: Object) -> tuple[Object, Any]:
    """Ask for an object without making it; return what was asked for, and the answer."""
    wanted = copy.deepcopy(manifest)
    wanted["apiVersion"] = OLDER.get(wanted["apiVersion"], wanted["apiVersion"])
    if wanted["kind"] not in CLUSTER_WIDE:
        wanted["metadata"]["namespace"] = SPACE
    answer = server.admin.post(_path(wanted), params={"dryRun": "All"}, json=wanted)
    return wanted, answer


def _missing(wanted: Any, got: Any, where: str = "") -> Iterator[str]:
    """Which fields of `wanted` are not, or not so, in what came back."""
    if isinstance(wanted, dict) and isinstance(got, dict):
        for key, value in wanted.items():
            if key not in got and value not in ({}, [], None):
                yield f"{where}.{key}"
            elif key in got:
                yield from _missing(value, got[key], f"{where}.{key}")
    elif isinstance(wanted, list) and isinstance(got, list) and len(wanted) == len(got):
        for index, (mine, theirs) in enumerate(zip(wanted, got, strict=True)):
            yield from _missing(mine, theirs, f"{where}[{index}]")
    elif wanted != got:
        yield f"{where}: {wanted!r} became {got!r}"


@pytest.mark.parametrize("overlay", OVERLAYS)
async def test_the_server_takes_every_object_and_keeps_every_field(overlay: str, server: KubeServer) -> None:
    for manifest in rendered(overlay):
        wanted, answer = _asked(server, manifest)
        what = f"{manifest['kind']} {manifest['metadata']['name']}"
        assert answer.status_code == 201, f"{what}: {answer.text}"
        assert list(_missing(wanted, answer.json())) == [], what


async def test_the_server_refuses_what_is_wrong_and_drops_what_it_does_not_know(server: KubeServer) -> None:
    (deployment, *_) = (each for each in rendered("local") if each["kind"] == "Deployment")
    wrong = copy.deepcopy(deployment)
    wrong["spec"]["selector"]["matchLabels"]["app.kubernetes.io/name"] = "somebody-else"
    _, answer = _asked(server, wrong)
    assert answer.status_code == 422
    assert "`selector` does not match template `labels`" in answer.text

    misspelt = copy.deepcopy(deployment)
    misspelt["spec"]["template"]["spec"]["terminationGracePeriodSecond"] = 5
    wanted, answer = _asked(server, misspelt)
    assert list(_missing(wanted, answer.json())) == [".spec.template.spec.terminationGracePeriodSecond"]
