"""The manifests of k8s/base/imagefetcher set up what `copydesk image install` does, with no right too many."""

from __future__ import annotations

import copy
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from copydesk.imagefetcher.installation import DROP_IN, ENVIRONMENT, HOLDER_UNIT, Choice, plan
from copydesk.imagefetcher.settings import ImageFetcherSettings

FOLDER = Path(__file__).parents[3] / "k8s" / "base" / "imagefetcher"
CHOICE = Choice(Path("python"), Path("/var/lib/copydesk/imagefetcher"), Path("/run/copydesk/imagefetcher"))


def objects() -> dict[tuple[str, str], dict[str, Any]]:
    """Every object of the folder, by kind and name, as kustomize puts them together."""
    kustomization = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
    found = [
        each for name in kustomization["resources"] for each in yaml.safe_load_all((FOLDER / name).read_text())
    ]
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def pod(name: str) -> dict[str, Any]:
    spec: dict[str, Any] = objects()["DaemonSet", name]["spec"]["template"]["spec"]
    return spec


def environment(container: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each.get("value", "") for each in container["env"]}


def test_containerd_is_told_what_the_installation_tells_it() -> None:
    config = objects()["ConfigMap", "copydesk-image-containerd"]["data"]
    assert config == {DROP_IN.name: plan(CHOICE, None).files[DROP_IN]}
    (init,) = pod("copydesk-imagefetcher")["initContainers"]
    (target,) = (mount for mount in init["volumeMounts"] if mount["name"] == "containerd")
    assert init["command"] == ["cp", f"/config/{DROP_IN.name}", f"{target['mountPath']}/{DROP_IN.name}"]
    volumes = {volume["name"]: volume for volume in pod("copydesk-imagefetcher")["volumes"]}
    assert volumes["containerd"]["hostPath"]["path"] == str(DROP_IN.parent)


def test_the_daemon_has_the_settings_of_the_installation_and_none_that_it_does_not_know() -> None:
    (container,) = pod("copydesk-imagefetcher")["containers"]
    given = environment(container)
    for line in plan(CHOICE, None).files[ENVIRONMENT].splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            assert given[name] == value
    known = {f"COPYDESK_IMAGEFETCHER_{name.upper()}" for name in ImageFetcherSettings.model_fields}
    assert given.keys() <= known


def test_holder_and_daemon_are_the_programs_of_the_units_and_apart() -> None:
    for name in ("copydesk-image-holder", "copydesk-imagefetcher"):
        (container,) = pod(name)["containers"]
        files = plan(CHOICE, None).files
        unit = files[HOLDER_UNIT] if "holder" in name else files[HOLDER_UNIT.with_name(f"{name}.service")]
        assert f"ExecStart={' '.join(container['command'])}\n" in unit
    assert objects()["DaemonSet", "copydesk-image-holder"]["spec"]["updateStrategy"] == {"type": "OnDelete"}


def test_mounts_reach_the_node_at_the_paths_that_they_have_there() -> None:
    spec = pod("copydesk-imagefetcher")
    (container,) = spec["containers"]
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume}
    shared = {mount["name"]: mount for mount in container["volumeMounts"] if "mountPropagation" in mount}
    assert set(shared) == {"state", "run"}
    for name, mount in shared.items():
        assert mount["mountPath"] == paths[name]
        assert mount["mountPropagation"] == "Bidirectional"
    given = environment(container)
    assert given["COPYDESK_IMAGEFETCHER_STATE_DIR"] == paths["state"]
    assert given["COPYDESK_IMAGEFETCHER_RUN_DIR"] == paths["run"]
    (holder,) = pod("copydesk-image-holder")["containers"]
    assert environment(holder)["COPYDESK_IMAGEFETCHER_RUN_DIR"] == paths["run"]


def test_only_who_mounts_is_privileged_and_nobody_has_a_token() -> None:
    privileged = set()
    for kind, name in objects():
        if kind != "DaemonSet":
            continue
        spec = pod(name)
        assert spec["automountServiceAccountToken"] is False
        assert not spec.get("hostNetwork")
        assert not spec.get("hostIPC")
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True
            if context.get("privileged"):
                privileged.add(container["name"])
                continue
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert context["allowPrivilegeEscalation"] is False
            assert not any("mountPropagation" in mount for mount in container["volumeMounts"])
    assert privileged == {"imagefetcher"}
    assert "hostPID" not in pod("copydesk-image-holder")


def test_selectors_volumes_ports_and_images_fit_together() -> None:
    images = {each["name"] for each in yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["images"]}
    for (kind, _), each in objects().items():
        if kind != "DaemonSet":
            continue
        template = each["spec"]["template"]
        assert each["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
        spec = template["spec"]
        volumes = {volume["name"] for volume in spec["volumes"]}
        used = set()
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            used |= {mount["name"] for mount in container["volumeMounts"]}
            assert container["image"] in images
            ports = {port["name"] for port in container.get("ports", ())}
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                assert probe not in container or container[probe]["httpGet"]["port"] in ports
        assert used == volumes
    lazy = objects()["RuntimeClass", "copydesk-lazy"]
    for name in ("copydesk-image-holder", "copydesk-imagefetcher"):
        assert lazy["scheduling"]["nodeSelector"].items() <= pod(name)["nodeSelector"].items()
        assert "runtimeClassName" not in pod(name)  # else they would wait for themselves


@pytest.mark.parametrize("version", ["1.27", "1.31", "1.34"])
def test_the_schemas_of_kubernetes_hold_for_them(version: str) -> None:
    for each in objects().values():
        kubernetes_validate.validate(each, version, strict=True)
        wrong = copy.deepcopy(each)
        wrong["metadata"]["nmae"] = "x"
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(wrong, version, strict=True)


def test_kustomize_builds_them() -> None:
    if shutil.which("kubectl") is None:
        reason = "kubectl is not installed"
        if os.environ.get("COPYDESK_REQUIRE_ALL") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    built = subprocess.run(
        ["kubectl", "kustomize", str(FOLDER)], capture_output=True, text=True, timeout=60, check=True
    )
    names = {(each["kind"], each["metadata"]["name"]) for each in yaml.safe_load_all(built.stdout)}
    assert names == objects().keys()
    assert "image: ghcr.io/copydesk/image-fetcher:0.1.0" in built.stdout
