"""What the manifests name exists: labels that selectors select, ports, volumes, accounts, configurations, classes.

None of it is in any schema: Kubernetes takes a selector that selects nothing without a word.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.fixtures.manifests import OVERLAYS, WORKLOADS, Object, of_kind, rendered, selects, workloads

pytestmark = pytest.mark.parametrize("overlay", OVERLAYS)

CONTRACT = {
    "Secret": {
        "copydesk-rpc",
        "copydesk-nats",
        "copydesk-redis",
        "copydesk-gateway-keys",
        *(f"copydesk-tls-{part}" for part in ("gateway", "eds", "inference", "autoscaler", "nats")),
    },
}
"""Secrets that docs/kubernetes.md has people make, by exactly these names."""

OPTIONAL = {"copydesk-image-registry"}


def test_each_selector_selects_its_own_pods_and_no_others(overlay: str) -> None:
    for each in workloads(overlay):
        chosen = [other.name for other in workloads(overlay) if selects(each.selector, other.labels)]
        assert chosen == [each.name]


def test_all_that_selects_pods_selects_some_in_its_namespace(overlay: str) -> None:
    for kind in ("Service", "PodDisruptionBudget", "NetworkPolicy"):
        for manifest in of_kind(overlay, kind):
            spec = manifest["spec"]
            selector = {"matchLabels": spec["selector"]} if kind == "Service" else spec.get("selector")
            selector = spec["podSelector"] if selector is None else selector
            there = [each for each in workloads(overlay) if each.namespace == manifest["metadata"]["namespace"]]
            assert any(selects(selector, each.labels) for each in there), manifest["metadata"]


def test_a_service_leads_to_ports_that_its_pods_have(overlay: str) -> None:
    for service in of_kind(overlay, "Service"):
        (each,) = (
            each
            for each in workloads(overlay)
            if selects({"matchLabels": service["spec"]["selector"]}, each.labels)
        )
        for port in service["spec"]["ports"]:
            assert port["targetPort"] in each.ports()
            if service["spec"].get("clusterIP") == "None":  # then clients come to the pod's own port
                assert port["port"] == each.ports()[port["targetPort"]]


def test_a_stateful_set_names_a_service_of_its_pods(overlay: str) -> None:
    for each in workloads(overlay):
        if each.manifest["kind"] != "StatefulSet":
            continue
        (service,) = (
            service
            for service in of_kind(overlay, "Service")
            if service["metadata"]["name"] == each.manifest["spec"]["serviceName"]
        )
        assert selects({"matchLabels": service["spec"]["selector"]}, each.labels)


def test_each_workload_that_may_be_evicted_has_one_budget(overlay: str) -> None:
    budgets = of_kind(overlay, "PodDisruptionBudget")
    for each in workloads(overlay):
        own = [budget for budget in budgets if selects(budget["spec"]["selector"], each.labels)]
        assert len(own) == (0 if each.manifest["kind"] == "DaemonSet" else 1), each.name


def test_pods_are_spread_among_their_like(overlay: str) -> None:
    for each in workloads(overlay):
        for spread in each.pod.get("topologySpreadConstraints", ()):
            assert selects(spread["labelSelector"], each.labels)
            assert spread["topologyKey"] in ("topology.kubernetes.io/zone", "kubernetes.io/hostname")


def test_volumes_are_mounted_and_mounts_have_volumes(overlay: str) -> None:
    for each in workloads(overlay):
        used = set()
        for container in each.containers:
            paths = [mount["mountPath"] for mount in container["volumeMounts"]]
            assert len(set(paths)) == len(paths)
            for mount in container["volumeMounts"]:
                each.volume(mount["name"])
                used.add(mount["name"])
        claims = [claim["metadata"]["name"] for claim in each.manifest["spec"].get("volumeClaimTemplates", ())]
        assert used == {volume["name"] for volume in each.pod["volumes"]} | set(claims)


def test_probes_ask_ports_that_the_container_names(overlay: str) -> None:
    for each in workloads(overlay):
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            probe = each.main.get(kind)
            if probe is None:
                assert each.component == "image-holder", f"{each.name} has no {kind}"
            elif "exec" not in probe:
                (where,) = (probe[how] for how in ("httpGet", "tcpSocket") if how in probe)
                assert where["port"] in each.ports()


def test_accounts_classes_and_configurations_are_there(overlay: str) -> None:
    there = {
        (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in rendered(overlay)
    }
    for each in workloads(overlay):
        if "serviceAccountName" in each.pod:
            assert ("ServiceAccount", each.namespace, each.pod["serviceAccountName"]) in there
        if priority := each.pod.get("priorityClassName"):
            assert priority.startswith("system-") or ("PriorityClass", None, priority) in there
        for volume in each.pod["volumes"]:
            if "configMap" in volume:
                assert ("ConfigMap", each.namespace, volume["configMap"]["name"]) in there


def test_secrets_are_referred_to_by_their_agreed_names_and_none_is_made_here(overlay: str) -> None:
    assert of_kind(overlay, "Secret") == []
    wanted = set()
    for each in workloads(overlay):
        for volume in each.pod["volumes"]:
            wanted |= {volume["secret"]["secretName"]} if "secret" in volume else set()
            wanted |= {part["secret"]["name"] for part in volume.get("projected", {}).get("sources", ())}
        for container in each.containers:
            assert "envFrom" not in container
            assert not any(
                "secretKeyRef" in variable.get("valueFrom", {}) for variable in container.get("env", ())
            )
    assert wanted - OPTIONAL == CONTRACT["Secret"]


def test_names_are_unique_and_everything_says_what_it_is_part_of(overlay: str) -> None:
    keys = Counter(
        (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in rendered(overlay)
    )
    assert [key for key, count in keys.items() if count > 1] == []
    for manifest in of_kind(overlay, *WORKLOADS, "Service", "NetworkPolicy", "PodDisruptionBudget"):
        assert manifest["metadata"]["labels"]["app.kubernetes.io/part-of"] == "copydesk"
    for each in workloads(overlay):
        assert each.labels["app.kubernetes.io/part-of"] == "copydesk"


def test_who_scales_the_pods_is_the_autoscaler_alone(overlay: str) -> None:
    assert of_kind(overlay, "HorizontalPodAutoscaler") == []
    (inference,) = (each for each in workloads(overlay) if each.component == "inference")
    assert "replicas" not in inference.manifest["spec"]


def _targets(manifest: Object) -> Object:
    selector: Object = manifest["spec"]["selector"]
    return selector


def test_monitors_find_the_ports_that_they_name(overlay: str) -> None:
    monitors = of_kind(overlay, "ServiceMonitor", "PodMonitor")
    assert (len(monitors) == 5) is (overlay == "h100")
    for monitor in monitors:
        spaces = monitor["spec"].get("namespaceSelector", {}).get("matchNames", [monitor["metadata"]["namespace"]])
        if monitor["kind"] == "ServiceMonitor":
            found = [
                service
                for service in of_kind(overlay, "Service")
                if selects(_targets(monitor), service["metadata"]["labels"])
            ]
            names = [{port["name"] for port in service["spec"]["ports"]} for service in found]
            where = {service["metadata"]["namespace"] for service in found}
        else:
            pods = [each for each in workloads(overlay) if selects(_targets(monitor), each.labels)]
            names, where = [set(each.ports()) for each in pods], {each.namespace for each in pods}
        (ports,) = names
        assert where == set(spaces)
        for endpoint in monitor["spec"].get("endpoints") or monitor["spec"]["podMetricsEndpoints"]:
            assert endpoint["port"] in ports
            assert endpoint["path"] == "/metrics"
