"""What the manifests tell the services is what these understand: variables, files, probes, and time to end in."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from fastapi.routing import APIRoute
from prometheus_client import CollectorRegistry

from copydesk.autoscaler import status_paths as autoscaler_status
from copydesk.autoscaler.service import Service as AutoscalerService
from copydesk.autoscaler.settings import AutoscalerSettings
from copydesk.common.settings import FILE_SUFFIX, ServiceSettings, load_settings, secret_fields, variable_name
from copydesk.eds import status_paths as eds_status
from copydesk.eds.service import Service as EdsService
from copydesk.eds.settings import EdsSettings
from copydesk.gateway.http.operations import guarded_router, health_router
from copydesk.gateway.service import Gateway
from copydesk.gateway.settings import GatewaySettings
from copydesk.imagefetcher.control.service import health_handler
from copydesk.imagefetcher.settings import ImageFetcherSettings
from copydesk.imagefetcher.web_server import Request
from copydesk.inference.pod.metrics import PodMetrics
from copydesk.inference.settings import InferenceSettings
from tests.fixtures.manifests import (
    OVERLAYS,
    MountedFile,
    Object,
    Workload,
    mounted_files,
    named,
    of_kind,
    workload,
    workloads,
)

SETTINGS: dict[str, type[ServiceSettings]] = {
    "gateway": GatewaySettings,
    "eds": EdsSettings,
    "autoscaler": AutoscalerSettings,
    "inference": InferenceSettings,
    "imagefetcher": ImageFetcherSettings,
}
OF_OTHERS = {"nats": {"POD_NAME"}, "redis": set[str]()}
"""Variables of what is not ours."""

OURS = [
    pytest.param(overlay, component, id=f"{overlay}-{component}")
    for overlay in OVERLAYS
    for component in SETTINGS
    if (overlay, component) != ("local", "imagefetcher")
]

Reader = Callable[[Workload], ServiceSettings]


def _content(overlay: str, file: MountedFile) -> str:
    if file.kind == "ConfigMap":
        return str(named(overlay, "ConfigMap", file.source)["data"][file.key])
    return "redis://:secret@copydesk-redis:6379/0\n" if file.key == "url" else f"{file.source}-{file.key}\n"


@pytest.fixture
def read_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    """Read the settings of a workload as its container would, with its files under a folder of the test."""

    def read(each: Workload) -> ServiceSettings:
        for name in [name for name in os.environ if name.startswith("COPYDESK_")]:
            monkeypatch.delenv(name)
        for file in mounted_files(each, each.main):
            place = tmp_path / file.path.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(_content(each.overlay, file))
        for name, value in each.environment(each.main).items():
            monkeypatch.setenv(name, str(tmp_path / value.lstrip("/")) if _is_in_mount(each, value) else value)
        return load_settings(SETTINGS[each.component])

    return read


def _is_in_mount(each: Workload, value: str) -> bool:
    read_only = [mount["mountPath"] for mount in each.main["volumeMounts"] if mount.get("readOnly")]
    return any(value.startswith(f"{path}/") for path in read_only)


@pytest.mark.parametrize(("overlay", "component"), OURS)
def test_the_settings_take_what_the_manifests_say(
    overlay: str, component: str, read_settings: Reader, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = read_settings(workload(overlay, component))
    assert capsys.readouterr().err == ""  # no unknown_setting
    for field in type(settings).model_fields:
        if field.endswith("_tls_cert_file"):
            on = component != "imagefetcher" and not field.startswith("xds")
            assert (getattr(settings, field) is not None) is on, field


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_each_variable_is_a_setting_of_its_service(overlay: str) -> None:
    for each in workloads(overlay):
        given = set(each.environment(each.main))
        assert len(given) == len(each.main.get("env", ()))
        if each.component in OF_OTHERS:
            assert given == OF_OTHERS[each.component]
            continue
        cls = SETTINGS["imagefetcher" if each.component == "image-holder" else each.component]
        known = {variable_name(cls, field) for field in cls.model_fields}
        secrets = {variable_name(cls, field) for field in secret_fields(cls)}
        assert given <= known | {f"{name}{FILE_SUFFIX}" for name in secrets}, each.name
        assert not given & secrets, "secrets come as files"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_each_file_that_is_named_is_mounted_and_each_mounted_secret_is_named(overlay: str) -> None:
    for each in workloads(overlay):
        if each.namespace != "copydesk":
            continue
        files = {file.path: file for file in mounted_files(each, each.main)}
        words = _words(each)
        named_files = {path for path in files if any(path in word for word in words)}
        assert {word for word in words if _is_in_mount(each, word)} <= files.keys(), each.name
        assert {path for path, file in files.items() if file.kind == "Secret"} <= named_files, each.name


def _words(each: Workload) -> set[str]:
    """All that could name a file: the variables, the command, and the configuration of what is not ours."""
    words = {*each.environment(each.main).values(), *each.main.get("command", ())}
    if each.component in OF_OTHERS:
        configs = (file for file in mounted_files(each, each.main) if file.kind == "ConfigMap")
        words |= {_content(each.overlay, file) for file in configs}
    return words


def test_the_profile_is_the_one_that_each_reads_and_names_the_prepared_model() -> None:
    for overlay in OVERLAYS:
        pod = workload(overlay, "inference")
        (init,) = pod.pod["initContainers"]
        assert init["command"][:-1] == ["python", "-m", "copydesk.inference.checkpoint"]
        (profile,) = (
            file for file in mounted_files(pod, pod.main) if file.path == "/etc/copydesk/profiles/gec-en.yaml"
        )
        assert f"  directory: {init['command'][-1]}\n" in _content(overlay, profile)
        shared = [{mount["mountPath"] for mount in container["volumeMounts"]} for container in (init, pod.main)]
        assert "/var/cache/copydesk" in shared[0] & shared[1]
        for component in ("gateway", "autoscaler", "inference"):
            each = workload(overlay, component)
            key = f"COPYDESK_{component.upper()}_PROFILE"
            assert each.environment(each.main)[key] == "/etc/copydesk/profiles/gec-en.yaml"


def _served(component: str, tmp_path: Path) -> set[str]:
    """The paths that a service answers on its status port."""
    registry = CollectorRegistry()
    match component:
        case "gateway":
            gateway = cast(Gateway, _Anything())
            routes = [*health_router(gateway).routes, *guarded_router(gateway).routes]
            return {route.path for route in routes if isinstance(route, APIRoute)}
        case "eds":
            return set(eds_status.status_paths(cast(EdsService, None), registry))
        case "autoscaler":
            return set(autoscaler_status.status_paths(cast(AutoscalerService, None), registry))
        case "inference":
            return set(PodMetrics(tmp_path).paths())
        case _:
            answer = health_handler(registry, alive=lambda: True, ready=lambda: True)
            return {path for path in ("/healthz", "/readyz", "/metrics") if answer(Request("GET", path, {}))}


class _Anything:
    """Stands for what a path would ask: here nothing is asked."""

    def __getattr__(self, name: str) -> object:
        return self


@pytest.mark.parametrize(("overlay", "component"), OURS)
def test_probes_ask_paths_that_the_service_has_on_the_port_that_it_is_told(
    overlay: str, component: str, tmp_path: Path, read_settings: Reader
) -> None:
    each = workload(overlay, component)
    settings = read_settings(each)
    told = {getattr(settings, key, 0) for key in ("port", "metrics_port")} - {0}
    assert set(each.ports().values()) == told
    for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert each.main[kind]["httpGet"]["path"] in _served(component, tmp_path)
    assert each.main["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert each.main["livenessProbe"]["httpGet"]["path"] == "/healthz"


def _pre_stop(each: Workload) -> float:
    sleep, seconds = each.main["lifecycle"]["preStop"]["exec"]["command"]
    assert sleep == "sleep"
    return float(seconds)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_nothing_that_was_accepted_outlives_its_time_to_end(overlay: str, read_settings: Reader) -> None:
    gateway, pod = workload(overlay, "gateway"), workload(overlay, "inference")
    at_gateway = cast(GatewaySettings, read_settings(gateway))
    longest = at_gateway.max_deadline_ms / 1000
    assert at_gateway.deadline_ms / 1000 <= longest

    drain = (at_gateway.drain_grace_ms + at_gateway.shutdown_timeout_ms) / 1000
    assert _pre_stop(gateway) >= 10  # until load balancers have heard of it
    assert drain >= longest
    assert gateway.pod["terminationGracePeriodSeconds"] >= _pre_stop(gateway) + drain + 5

    in_pod = cast(InferenceSettings, read_settings(pod))
    assert _pre_stop(pod) > longest
    assert pod.pod["terminationGracePeriodSeconds"] >= _pre_stop(pod) + in_pod.drain_timeout_ms / 1000 + 10


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_pod_is_given_as_long_to_start_as_it_gives_its_engine(overlay: str, read_settings: Reader) -> None:
    pod = workload(overlay, "inference")
    probe = pod.main["startupProbe"]
    settings = cast(InferenceSettings, read_settings(pod))
    assert probe["periodSeconds"] * probe["failureThreshold"] > settings.start_timeout_ms / 1000
    assert pod.manifest["spec"]["progressDeadlineSeconds"] > settings.start_timeout_ms / 1000


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_discovery_finds_the_pods_by_their_service(overlay: str, read_settings: Reader) -> None:
    eds = cast(EdsSettings, read_settings(workload(overlay, "eds")))
    services = [each for each in of_kind(overlay, "Service") if _follows(eds.kube_selector, each)]
    assert [service["metadata"]["name"] for service in services] == ["gec-en"]
    (service,) = services
    assert eds.kube_port in {port["name"] for port in service["spec"]["ports"]}
    pod = workload(overlay, "inference")
    assert pod.ports()[eds.kube_port] == cast(InferenceSettings, read_settings(pod)).port


def _follows(selector: str, service: Object) -> bool:
    assert "," not in selector
    assert "=" not in selector
    return selector in service["metadata"].get("labels", {})


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_decision_logs_fit_in_their_volume(overlay: str, read_settings: Reader) -> None:
    each = workload(overlay, "autoscaler")
    settings = cast(AutoscalerSettings, read_settings(each))
    (claim,) = each.manifest["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "1Gi"
    assert settings.log_bytes * settings.log_files < 0.75 * (1 << 30)
    assert settings.folder == Path("/var/lib/copydesk")
