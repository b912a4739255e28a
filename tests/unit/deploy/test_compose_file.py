"""compose.yaml and the Dockerfiles name what is there: settings, secrets, files, ports, and one version."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from copydesk.autoscaler.settings import AutoscalerSettings
from copydesk.common.settings import ServiceSettings, secret_fields, unknown_settings, variable_name
from copydesk.eds.settings import EdsSettings
from copydesk.gateway.settings import GatewaySettings
from copydesk.imagefetcher.settings import ImageFetcherSettings
from copydesk.inference.settings import InferenceSettings

ROOT = Path(__file__).parents[3]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
SETTINGS: dict[str, type[ServiceSettings]] = {
    "gateway": GatewaySettings,
    "eds": EdsSettings,
    "autoscaler": AutoscalerSettings,
    "inference": InferenceSettings,
    "image-fetcher": ImageFetcherSettings,
}
# They are read by all services, and by more than one process of a service.
COMMON = {"COPYDESK_CACHE_DIR", "COPYDESK_COMPILED_DIR"}
DOCKERFILES = sorted([*ROOT.glob("services/*/Dockerfile"), *ROOT.glob("services/*/Dockerfile.*")])
CONSTRAINT = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)")


def variables_of(dockerfile: Path) -> dict[str, str]:
    """The variables of the stage that runs."""
    stage = dockerfile.read_text().rpartition("\nFROM ")[2]
    return dict(re.findall(r"(?m)^(?:ENV|   ) (COPYDESK_\w+)=(\S+)", stage))


def expect_known(settings: type[ServiceSettings], variables: dict[str, str]) -> None:
    assert unknown_settings(settings, {name: "x" for name in variables if name not in COMMON}) == []


@pytest.mark.parametrize("service", SETTINGS)
def test_each_variable_is_a_setting_of_its_service(service: str) -> None:
    expect_known(SETTINGS[service], SERVICES[service]["environment"])


@pytest.mark.parametrize("service", SETTINGS)
def test_secrets_are_given_as_files_that_are_mounted(service: str) -> None:
    variables: dict[str, str] = SERVICES[service]["environment"]
    secrets = [variable_name(SETTINGS[service], field) for field in secret_fields(SETTINGS[service])]
    assert not set(secrets) & set(variables)
    named = [Path(path) for path in variables.values() if path.startswith("/run/secrets/")]
    assert {path.name for path in named} == set(SERVICES[service]["secrets"])


def test_every_secret_is_made_by_the_script_and_readable_by_its_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    script = [str(ROOT / "scripts" / "compose-secrets.sh"), str(folder)]
    subprocess.run(script, check=True, capture_output=True)
    made = {path.name: path.read_text() for path in folder.iterdir()}
    assert folder.stat().st_mode & 0o777 == 0o700
    declared = {Path(secret["file"]).name for secret in COMPOSE["secrets"].values()}
    assert declared <= made.keys()
    assert len(set(made.values())) == len(made)
    subprocess.run(script, check=True, capture_output=True)
    assert {path.name: path.read_text() for path in folder.iterdir()} == made


def test_a_secret_that_is_empty_is_not_said_to_be_made(tmp_path: Path) -> None:
    (tmp_path / "rpc_token").touch()
    script = [str(ROOT / "scripts" / "compose-secrets.sh"), str(tmp_path)]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "rpc_token is empty" in done.stderr


@pytest.mark.parametrize("key", ["gateway_api_key", "gateway_metrics_key"])
def test_a_key_that_the_gateway_does_not_know_is_told(tmp_path: Path, key: str) -> None:
    script = [str(ROOT / "scripts" / "compose-secrets.sh"), str(tmp_path)]
    subprocess.run(script, check=True, capture_output=True)
    (tmp_path / key).unlink()
    done = subprocess.run(script, check=True, capture_output=True, text=True)
    assert f"gateway_keys has no line for {tmp_path}/{key}" in done.stderr


def test_keys_and_addresses_are_made_from_their_secrets(tmp_path: Path) -> None:
    subprocess.run([str(ROOT / "scripts" / "compose-secrets.sh"), str(tmp_path)], check=True, capture_output=True)
    read = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert read["redis_url"] == f"redis://:{read['redis_password']}@redis:6379/0"
    assert read["nats_token"] in read["nats_auth"]
    assert read["redis_password"] not in read["redis_acl"]
    assert read["gateway_api_key"] not in read["gateway_keys"]


@pytest.mark.parametrize(("secret", "made"), [("nats_token", "nats_auth"), ("redis_password", "redis_acl")])
def test_a_secret_made_anew_beside_what_the_old_one_made_is_told(secret: str, made: str, tmp_path: Path) -> None:
    script = [str(ROOT / "scripts" / "compose-secrets.sh"), str(tmp_path)]
    subprocess.run(script, check=True, capture_output=True)
    (tmp_path / secret).unlink()
    told = subprocess.run(script, capture_output=True, text=True)
    assert told.returncode == 1
    assert f"{made} was made from another {secret}" in told.stderr


def test_files_that_are_mounted_are_there() -> None:
    for service in SERVICES.values():
        for volume in service.get("volumes", ()):
            if isinstance(volume, str) and volume.startswith("./"):
                assert (ROOT / volume.split(":")[0]).exists(), volume


def test_what_one_service_says_of_the_model_the_others_say_too() -> None:
    named = {
        variables["COPYDESK_" + service.upper() + "_MODEL"]
        for service in ("gateway", "autoscaler", "inference")
        for variables in [SERVICES[service]["environment"]]
    }
    assert named == {"${COPYDESK_MODEL:-gec-en}"}
    assert SERVICES["model"]["command"] == [SERVICES["inference"]["environment"]["COPYDESK_INFERENCE_MODEL_DIR"]]


@pytest.mark.parametrize("service", [name for name in SERVICES if name != "image-fetcher"])
def test_nobody_may_more_than_needed(service: str) -> None:
    found = SERVICES[service]
    assert found["read_only"]
    assert found["cap_drop"] == ["ALL"]
    assert found["security_opt"] == ["no-new-privileges:true"]
    assert set(found["deploy"]["resources"]["limits"]) == {"cpus", "memory", "pids"}


def test_ports_are_bound_to_loopback() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert len(ports) == 3
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_a_container_has_longer_than_its_service_takes_to_drain() -> None:
    def grace(service: str) -> float:
        return float(SERVICES[service]["stop_grace_period"].removesuffix("s"))

    pod = InferenceSettings.model_fields["drain_timeout_ms"].default / 1000
    gateway = GatewaySettings.model_fields
    assert grace("inference") > pod + 10
    assert grace("gateway") > (gateway["shutdown_timeout_ms"].default + gateway["drain_grace_ms"].default) / 1000


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_an_image_sets_what_its_service_knows(path: Path) -> None:
    name = {"imagefetcher": "image-fetcher"}.get(path.parent.name, path.parent.name)
    variables = variables_of(path)
    assert variables
    expect_known(SETTINGS[name], variables)


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_an_image_is_of_the_version_of_its_distribution(path: Path) -> None:
    version = tomllib.loads((path.parent / "pyproject.toml").read_text())["project"]["version"]
    assert f"ARG VERSION={version}\n" in path.read_text()
    assert f"${{COPYDESK_VERSION:-{version}}}" in (ROOT / "compose.yaml").read_text()


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_an_image_gets_each_distribution_that_its_service_needs(path: Path) -> None:
    projects = {
        project["name"]: (file.parent, project)
        for file in ROOT.glob("*/*/pyproject.toml")
        for project in [tomllib.loads(file.read_text())["project"]]
    }

    def needed(name: str) -> set[str]:
        folder, project = projects[name]
        ours = {re.split(r"[^a-z-]", need)[0] for need in project.get("dependencies", [])} & projects.keys()
        return {str(folder.relative_to(ROOT))}.union(*map(needed, ours))

    name = tomllib.loads((path.parent / "pyproject.toml").read_text())["project"]["name"]
    copied = set(re.findall(r"(?m)^COPY ((?:libs|models|services|apps)/[a-z-]+) ", path.read_text()))
    assert copied == needed(name)


def test_both_sets_of_versions_agree_but_where_vllm_wants_another() -> None:
    def versions(path: Path) -> dict[str, str]:
        found = map(CONSTRAINT.match, path.read_text().splitlines())
        return {m[1].lower().replace("_", "-"): m[2] for m in found if m}

    ours = versions(ROOT / "constraints.txt")
    vllm = versions(ROOT / "services" / "inference" / "constraints-vllm.txt")
    differing = {name for name in ours.keys() & vllm.keys() if ours[name] != vllm[name]}
    assert differing == {"compressed-tensors", "fastapi", "numpy", "transformers"}
    assert f"version={vllm['vllm']}\n" in (ROOT / "scripts" / "vllm-env.sh").read_text()
