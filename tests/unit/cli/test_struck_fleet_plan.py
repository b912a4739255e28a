"""What a fleet has that is to be struck: a door before each pod, and a Redis that is asked for every request."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from copydesk.cli.fleet.plan import Door, Redis, Role, plan_fleet
from copydesk.cli.fleet.policy import stop_phases
from copydesk.inference.pod.supervisor import identity
from copydesk.inference.settings import InferenceSettings
from tests.fixtures.fleet_options import OPTIONS


def test_a_pod_with_a_door_listens_behind_it_and_others_take_a_free_port() -> None:
    specs = {spec.name: spec for spec in plan_fleet(replace(OPTIONS, doors={"pod-1": Door(21_001, 21_002)}))}
    assert specs["pod-1"].env["COPYDESK_INFERENCE_PORT"] == "21001"
    assert specs["pod-1"].env["COPYDESK_INFERENCE_ADVERTISE_PORT"] == "21002"
    assert specs["pod-2"].env["COPYDESK_INFERENCE_PORT"] == "0"
    assert "COPYDESK_INFERENCE_ADVERTISE_PORT" not in specs["pod-2"].env


def test_a_pod_names_the_port_that_others_reach_it_by() -> None:
    settings = InferenceSettings(model_dir=Path("/models/gec-en"), pod="pod-1", advertise_port=21_002)
    assert identity(settings, 21_001, 0.0).port == 21_002
    assert identity(settings.model_copy(update={"advertise_port": 0}), 21_001, 0.0).port == 21_001


def test_a_redis_is_there_from_the_first_to_the_last_and_asked_by_the_gateway() -> None:
    specs = plan_fleet(replace(OPTIONS, redis=Redis("/usr/bin/redis-server", 26_379)))
    (redis,) = [spec for spec in specs if spec.role is Role.REDIS]
    assert redis.argv[1:5] == ("--bind", "127.0.0.1", "--port", "26379")
    gateway = next(spec for spec in specs if spec.role is Role.GATEWAY)
    assert gateway.env["COPYDESK_GATEWAY_REDIS_URL"] == "redis://127.0.0.1:26379/0"
    assert float(gateway.env["COPYDESK_GATEWAY_LIMIT_REQUESTS_PER_SECOND"]) > 1000
    names = [name for phase in stop_phases(specs) for name in phase.names]
    assert names.index("gateway") < names.index("redis")


def test_without_one_the_gateway_hears_of_none() -> None:
    assert not [key for spec in plan_fleet(OPTIONS) for key in spec.env if "REDIS" in key or "LIMIT" in key]
