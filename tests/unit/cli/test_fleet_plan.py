"""Which processes a fleet has, and how they are configured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.autoscaler.settings import AutoscalerSettings
from copydesk.cli.fleet.plan import (
    Candidate,
    Role,
    Scaling,
    Vital,
    model_name,
    plan_autoscaler,
    plan_fleet,
    plan_pod,
)
from copydesk.cli.fleet.scaling import Limits
from copydesk.common.messages import subject_token
from tests.fixtures.fleet_options import OPTIONS


def test_a_fleet_is_nats_discovery_pods_and_a_gateway() -> None:
    specs = plan_fleet(OPTIONS)
    assert [spec.name for spec in specs] == ["nats", "eds", "pod-1", "pod-2", "gateway"]
    assert specs[1].argv == ("/venv/bin/python", "-m", "copydesk.eds")


def test_everybody_meets_at_the_same_nats_and_nowhere_but_on_loopback() -> None:
    nats, *services = plan_fleet(OPTIONS)
    assert nats.argv[1:5] == ("--addr", "127.0.0.1", "--port", "24222")
    urls = {value for spec in services for key, value in spec.env.items() if key.endswith("_NATS_URL")}
    hosts = {value for spec in services for key, value in spec.env.items() if key.endswith("_HOST")}
    assert urls == {"nats://127.0.0.1:24222"}
    assert hosts == {"127.0.0.1"}


def test_gateway_and_pods_agree_on_model_and_token() -> None:
    specs = {spec.name: spec.env for spec in plan_fleet(OPTIONS)}
    for key in ("MODEL", "RPC_TOKEN"):
        assert specs["gateway"][f"COPYDESK_GATEWAY_{key}"] == specs["pod-1"][f"COPYDESK_INFERENCE_{key}"]
    assert specs["pod-2"]["COPYDESK_INFERENCE_POD"] == "pod-2"
    assert specs["pod-1"]["COPYDESK_INFERENCE_MODEL_DIR"] == "/models/gec-en"


def test_nobody_without_the_token_is_let_in_by_nats() -> None:
    nats, *services = plan_fleet(OPTIONS)
    config = Path(nats.argv[nats.argv.index("--config") + 1]).read_text(encoding="utf-8")
    (variable,) = nats.env
    assert f"token: ${variable}" in config
    assert nats.env[variable] == '"also-secret"'
    tokens = [value for spec in services for key, value in spec.env.items() if key.endswith("_NATS_TOKEN")]
    assert tokens == ["also-secret"] * len(services)


def test_secrets_are_in_no_command_line() -> None:
    assert all("secret" not in argument for spec in plan_fleet(OPTIONS) for argument in spec.argv)


@pytest.mark.parametrize(("cores", "pods", "threads"), [(8, 2, 4), (2, 2, 1), (7, 2, 3), (1, 4, 1), (8, 3, 2)])
def test_pods_share_the_cores(cores: int, pods: int, threads: int) -> None:
    options = replace(OPTIONS, cores=cores, pods=pods)
    pod = next(spec for spec in plan_fleet(options) if spec.role is Role.POD)
    assert pod.env["COPYDESK_INFERENCE_THREADS"] == str(threads)


def test_where_pods_come_and_go_each_has_the_threads_of_the_largest_fleet() -> None:
    options = replace(OPTIONS, cores=8, pods=1, scaling=Scaling(Limits(1, 4)))
    first = next(spec for spec in plan_fleet(options) if spec.role is Role.POD)
    more = plan_pod(options, "pod-2")
    assert first.env["COPYDESK_INFERENCE_THREADS"] == more.env["COPYDESK_INFERENCE_THREADS"] == "2"
    assert {**first.env, "COPYDESK_INFERENCE_POD": "pod-2"} == more.env
    assert (first.vital, more.vital) == (Vital.ALWAYS, Vital.NEVER)


def test_the_autoscaler_knows_its_limits_and_what_it_is_about() -> None:
    scaling = Scaling(Limits(1, 4), Path("/capacity.json"))
    spec = plan_autoscaler(OPTIONS, scaling, cold_start=3.26)
    assert spec.argv == ("/venv/bin/python", "-m", "copydesk.autoscaler")
    assert {key.removeprefix("COPYDESK_AUTOSCALER_"): value for key, value in spec.env.items()} == {
        "NATS_URL": "nats://127.0.0.1:24222",
        "NATS_TOKEN": "also-secret",
        "ACTUATOR": "local",
        "MODEL": "gec-en",
        "MIN_PODS": "1",
        "MAX_PODS": "4",
        "COLD_START_S": "3.3",
        "STATE_DIR": "/state/autoscaler",
        "CERTIFICATE": "/capacity.json",
    }
    assert "COPYDESK_AUTOSCALER_CERTIFICATE" not in plan_autoscaler(OPTIONS, Scaling(Limits(1, 4)), 1.0).env


def test_the_autoscalers_settings_are_there_as_they_are_named() -> None:
    spec = plan_autoscaler(OPTIONS, Scaling(Limits(1, 4), Path("/capacity.json")), cold_start=3.26)
    keys = {key.removeprefix("COPYDESK_AUTOSCALER_").lower() for key in spec.env}
    assert keys <= AutoscalerSettings.model_fields.keys()


@given(st.text(min_size=1, max_size=80).filter(lambda name: "/" not in name and "\0" not in name))
def test_any_directory_gives_a_name_that_a_subject_takes(name: str) -> None:
    assert subject_token(model_name(Path("/models") / name))


def test_what_computes_is_said_to_every_pod_or_left_to_the_environment() -> None:
    assert "COPYDESK_INFERENCE_ENGINE" not in plan_pod(OPTIONS, "pod-1").env
    chosen = plan_pod(replace(OPTIONS, engine="vllm"), "pod-1")
    assert chosen.env["COPYDESK_INFERENCE_ENGINE"] == "vllm"


def test_pods_of_another_version_run_beside_the_others_under_the_same_name() -> None:
    candidate = Candidate(Path("/models/new"), 2, Path("/models/new.yaml"))
    options = replace(OPTIONS, candidate=candidate, profile=Path("/models/old.yaml"))
    specs = {spec.name: spec for spec in plan_fleet(options)}
    assert list(specs) == ["nats", "eds", "pod-1", "pod-2", "candidate-1", "candidate-2", "gateway"]
    old, new = specs["pod-2"], specs["candidate-2"]
    assert new.env["COPYDESK_INFERENCE_MODEL"] == old.env["COPYDESK_INFERENCE_MODEL"] == "gec-en"
    assert new.env["COPYDESK_INFERENCE_MODEL_DIR"] == "/models/new"
    assert new.env["COPYDESK_INFERENCE_PROFILE"] == "/models/new.yaml"
    assert old.env["COPYDESK_INFERENCE_MODEL_DIR"] == "/models/gec-en"
    assert old.env["COPYDESK_INFERENCE_PROFILE"] == "/models/old.yaml"
    assert new.env["COPYDESK_INFERENCE_THREADS"] == old.env["COPYDESK_INFERENCE_THREADS"] == "2"
    assert (old.vital, new.vital) == (Vital.ALWAYS, Vital.AT_FIRST)
