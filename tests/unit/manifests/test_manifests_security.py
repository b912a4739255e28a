"""Who may reach whom, what a container may do, and what an account may: exactly what is needed."""

from __future__ import annotations

from itertools import product

import pytest
import yaml

from tests.fixtures.manifests import K8S, OVERLAYS, Labels, Object, Workload, named, of_kind, selects, workloads

PROMETHEUS = ("monitoring", {"app.kubernetes.io/name": "prometheus"})
STRANGER = ("default", {"app": "somebody"})

FLOWS = {
    ("gateway", "inference", 9000),
    ("gateway", "nats", 4222),
    ("gateway", "redis", 6379),
    ("eds", "inference", 9000),
    ("eds", "nats", 4222),
    ("autoscaler", "nats", 4222),
    ("inference", "nats", 4222),
    ("nats", "nats", 6222),
    ("stranger", "gateway", 8080),
    ("prometheus", "gateway", 8080),
}
MONITORED = {
    ("prometheus", "eds", 9100),
    ("prometheus", "autoscaler", 9100),
    ("prometheus", "inference", 9100),
    ("prometheus", "imagefetcher", 9100),
}

Peer = tuple[str, Labels]


def _is_meant(rule: Object, side: str, peer: Peer, own: str, port: int) -> bool:
    """Whether a rule of a policy in the namespace `own` lets traffic of this peer through."""
    ports = [each["port"] for each in rule.get("ports", ())]
    if ports and port not in ports:
        return False
    peers = rule.get(side)
    if not peers:
        return True
    namespace, labels = peer
    return any(
        (
            selects(each["namespaceSelector"], {"kubernetes.io/metadata.name": namespace})
            if "namespaceSelector" in each
            else namespace == own
        )
        and selects(each.get("podSelector", {}), labels)
        for each in peers
    )


def _lets(overlay: str, kind: str, pod: Peer, peer: Peer, port: int) -> bool:
    """Whether the policies for `pod` let `peer` in (or `pod` out to it); without any policy, everything is let."""
    policies = [
        policy["spec"]
        for policy in of_kind(overlay, "NetworkPolicy")
        if policy["metadata"]["namespace"] == pod[0]
        and kind in policy["spec"]["policyTypes"]
        and selects(policy["spec"]["podSelector"], pod[1])
    ]
    side, rules = {"Ingress": ("from", "ingress"), "Egress": ("to", "egress")}[kind]
    return not policies or any(
        _is_meant(rule, side, peer, pod[0], port) for policy in policies for rule in policy.get(rules, ())
    )


def _peers(overlay: str) -> dict[str, Peer]:
    fleet = {each.component: (each.namespace, each.labels) for each in workloads(overlay)}
    return {**fleet, "prometheus": PROMETHEUS, "stranger": STRANGER}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_each_port_is_reached_by_those_who_need_it_and_by_nobody_else(overlay: str) -> None:
    peers = _peers(overlay)
    open_ways = {
        (source, each.component, port)
        for each, source in product(workloads(overlay), peers)
        for port in (*each.ports().values(), 22)
        if _lets(overlay, "Ingress", peers[each.component], peers[source], port)
        and _lets(overlay, "Egress", peers[source], peers[each.component], port)
    }
    # The image fetcher may go wherever a registry could be; a gateway is open to whoever shows a key.
    open_ways.discard(("imagefetcher", "gateway", 8080))
    assert open_ways == FLOWS | (MONITORED if overlay == "h100" else set())


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_only_those_who_watch_the_cluster_reach_its_api_and_all_of_the_fleet_its_names(overlay: str) -> None:
    api: Peer = ("default", {})
    dns: Peer = ("kube-system", {"k8s-app": "kube-dns"})
    reaching = {
        each.component
        for each in workloads(overlay)
        if each.namespace == "copydesk" and _lets(overlay, "Egress", (each.namespace, each.labels), api, 6443)
    }
    assert reaching == {"eds", "autoscaler"}
    for each in workloads(overlay):
        named_by_dns = _lets(overlay, "Egress", (each.namespace, each.labels), dns, 53)
        assert named_by_dns is (each.component != "image-holder")


def _is_restricted(each: Workload) -> list[str]:
    """What breaks the Pod Security Standard `restricted` (https://kubernetes.io/docs/concepts/security/)."""
    faults = [key for key in ("hostNetwork", "hostPID", "hostIPC") if each.pod.get(key)]
    kinds = (
        "configMap",
        "secret",
        "projected",
        "emptyDir",
        "persistentVolumeClaim",
        "downwardAPI",
        "ephemeral",
        "csi",
    )
    faults += [volume["name"] for volume in each.pod["volumes"] if not any(kind in volume for kind in kinds)]
    outer = each.pod["securityContext"]
    if not outer.get("runAsNonRoot") or not outer.get("runAsUser"):
        faults.append("root")
    if outer.get("seccompProfile", {}).get("type") != "RuntimeDefault":
        faults.append("seccomp")
    for container in each.containers:
        inner = container["securityContext"]
        if inner.get("allowPrivilegeEscalation") is not False or inner.get("privileged"):
            faults.append(f"{container['name']}: privileges")
        if inner.get("capabilities") != {"drop": ["ALL"]}:
            faults.append(f"{container['name']}: capabilities")
        faults += [
            f"{container['name']}: {key}"
            for key in ("runAsUser", "runAsNonRoot", "seccompProfile")
            if key in inner
        ]
        faults += [f"{container['name']}: host port" for port in container.get("ports", ()) if "hostPort" in port]
    return faults


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_pods_are_restricted_as_their_namespace_demands(overlay: str) -> None:
    enforced = {
        each["metadata"]["name"]: each["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
        for each in of_kind(overlay, "Namespace")
    }
    assert enforced["copydesk"] == "restricted"
    for each in workloads(overlay):
        if enforced[each.namespace] == "restricted":
            assert _is_restricted(each) == []
            for container in each.containers:
                assert container["securityContext"]["readOnlyRootFilesystem"] is True
                assert container["resources"]["limits"]["memory"]
                assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
            assert {each.pod["securityContext"][key] for key in ("runAsUser", "runAsGroup", "fsGroup")} == {10001}
    privileged = [each.name for each in workloads(overlay) if enforced[each.namespace] == "privileged"]
    assert privileged == (["copydesk-image-holder", "copydesk-imagefetcher"] if overlay == "h100" else [])


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_only_those_with_a_role_have_a_token_of_the_api(overlay: str) -> None:
    bound = {
        (subject["namespace"], subject["name"]): binding["roleRef"]["name"]
        for binding in of_kind(overlay, "RoleBinding")
        for subject in binding["subjects"]
    }
    assert of_kind(overlay, "ClusterRole", "ClusterRoleBinding") == []
    for each in workloads(overlay):
        account = each.pod.get("serviceAccountName", "default")
        with_token = each.pod.get("automountServiceAccountToken", True)
        assert with_token is ((each.namespace, account) in bound), each.name


@pytest.mark.parametrize("overlay", OVERLAYS)
@pytest.mark.parametrize("component", ["eds", "autoscaler"])
def test_the_roles_are_those_that_the_tests_against_a_real_server_run_with(overlay: str, component: str) -> None:
    (role,) = (
        each
        for each in yaml.safe_load_all((K8S / "base" / component / "role.yaml").read_text())
        if each["kind"] == "Role"
    )
    assert named(overlay, "Role", f"copydesk-{component}")["rules"] == role["rules"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_autoscaler_may_scale_the_deployment_that_it_scales_by_default(overlay: str) -> None:
    names = {
        name
        for rule in named(overlay, "Role", "copydesk-autoscaler")["rules"]
        if "deployments/scale" in rule["resources"]
        for name in rule["resourceNames"]
    }
    (inference,) = (each for each in workloads(overlay) if each.component == "inference")
    assert names == {inference.name}
    assert inference.labels["copydesk/model"] == inference.name  # KUBE_WORKLOAD is by default named as the model
