"""What is to be scaled, from settings and files; whatever cannot be kept is refused by its key."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from copydesk.autoscaler.plan import PlanError
from copydesk.autoscaler.plans import load_plans
from copydesk.autoscaler.settings import AutoscalerSettings
from copydesk.loadtest.certificate import Certificate, CurvePoint, Hardware, Interval, write_certificate

CERTIFICATE = Certificate(
    model="gec-en",
    model_digest="sha256:x",
    config_digest="",
    hardware=Hardware(name="EPYC"),
    slo_ms=800.0,
    rate=200.0,
    concurrency=20.0,
    interval=Interval(190.0, 210.0),
    curve=(CurvePoint(rate=150.0, concurrency=10.0, p50_ms=50.0, p99_ms=100.0),),
    made_at=1.0,
    pods=2,
)


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    path = tmp_path / "capacity.json"
    write_certificate(CERTIFICATE, path)
    return path


def settings(**changes: Any) -> AutoscalerSettings:
    return AutoscalerSettings(**changes)


def refused(**changes: Any) -> PlanError:
    with pytest.raises(PlanError) as caught:
        load_plans(settings(**changes))
    assert caught.value.exit_code == 2
    return caught.value


def test_one_model_is_described_by_settings() -> None:
    (plan,) = load_plans(
        settings(model="m", min_pods=2, max_pods=9, cold_start_s=12.0, image="i", kube_workload="w")
    )
    assert (plan.model, plan.image, plan.workload, plan.candidate) == ("m", "i", "w", None)
    assert (plan.live.limits.min_pods, plan.live.limits.max_pods) == (2, 9)
    assert plan.live.rules.cold_start_s == 12.0
    assert plan.live.source.assumed


def test_a_certificate_says_what_a_pod_can_do(certificate: Path) -> None:
    (plan,) = load_plans(settings(certificate=certificate, hardware="EPYC", model_digest="sha256:x"))
    capacity = plan.live.source.given(None)
    assert capacity is not None
    assert (capacity.concurrency, capacity.rate, capacity.slo_ms) == (10.0, 100.0, 800.0)
    assert (plan.live.source.assumed, plan.live.source.digest) == (False, "sha256:x")


@pytest.mark.parametrize(
    ("changes", "key", "problem"),
    [
        ({"min_pods": 5, "max_pods": 4}, "MAX_PODS", "expected min_pods"),
        ({"model": "other"}, "CERTIFICATE", "another model"),
        ({"hardware": "Xeon"}, "CERTIFICATE", "another hardware"),
        ({"model_digest": "sha256:y"}, "CERTIFICATE", "another weights"),
        ({"concurrency": 3.0}, "CERTIFICATE", "neither concurrency nor rate"),
        ({"certificate": "/nonexistent/file.json"}, "CERTIFICATE", "No such file"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_its_key(
    certificate: Path, changes: dict[str, Any], key: str, problem: str
) -> None:
    error = refused(**{"certificate": certificate, **changes})
    assert error.key == key
    assert problem in error.problem


MODELS = """
models:
  - model: gec-en
    min_pods: 2
    max_pods: 40
    certificate: capacity.json
    cold_start_s: 20
    workload: statefulsets/pods
    namespace: gpu
    image: registry/pod:1
    rules: {memory_s: 120, growth_pods: 6}
    candidate: {name: cautious, max_pods: 60, rules: {guard: 0.8}}
  - model: other
    concurrency: 12
"""


def test_several_models_and_their_candidates_are_described_by_a_file(certificate: Path) -> None:
    file = certificate.with_name("models.yaml")
    file.write_text(MODELS)
    first, second = load_plans(settings(models_file=file))
    assert (first.workload, first.namespace, first.image) == ("statefulsets/pods", "gpu", "registry/pod:1")
    assert (first.live.rules.memory_s, first.live.rules.growth_pods) == (120, 6)
    candidate = first.candidate
    assert candidate is not None
    assert (candidate.name, candidate.limits.min_pods, candidate.limits.max_pods) == ("cautious", 2, 60)
    assert (candidate.rules.guard, candidate.rules.memory_s, candidate.rules.cold_start_s) == (0.8, 120, 20.0)
    assert candidate.source == first.live.source
    assert (second.model, second.live.limits.max_pods, second.candidate) == ("other", 8, None)


def test_a_shadow_file_is_for_models_that_have_no_candidate_of_their_own(certificate: Path) -> None:
    file, shadow = certificate.with_name("models.yaml"), certificate.with_name("shadow.yaml")
    file.write_text(MODELS)
    shadow.write_text("candidate: {name: half, concurrency: 6}")
    first, second = load_plans(settings(models_file=file, shadow_file=shadow))
    assert first.candidate is not None
    assert second.candidate is not None
    assert (first.candidate.name, second.candidate.name) == ("cautious", "half")
    assert second.candidate.source.concurrency == 6.0


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("models: []", "one or more models"),
        ("models: [{model: a}, {model: a}]", "each named once"),
        ("models: [{model: a.b}]", "models[0].model: 'a.b' is no valid name"),
        ("models: [{model: a, max_pod: 3}]", "unknown field `max_pod` - at `$.models[0]`"),
        ("models: [{model: a, max_pods: many}]", "`$.models[0].max_pods`"),
        ("models: [{model: a, min_pods: 0}]", "models[0].min_pods: 0: expected 1"),
        ("models: [{model: a, max_pods: 99999}]", "models[0].max_pods: 99999: expected 10000"),
        ("models: [{model: a, cold_start_s: .nan}]", "models[0].cold_start_s: nan"),
        ("models: [{model: a, concurrency: -3}]", "models[0].concurrency: -3.0"),
        ("models: [{model: a, slo_ms: 0}]", "models[0].slo_ms: 0.0"),
        ("models: [{model: a, rules: {speed: 3}}]", "speed is no rule; there are drain_s"),
        ("models: [{model: a, rules: {memory_s: -1}}]", "models[0].rules.memory_s: -1"),
        ("models: [{model: a, candidate: {name: live}}]", "models[0].candidate.name: 'live'"),
        ("models: [{model: a, candidate: {max_pods: 0}}]", "models[0].candidate.max_pods: 0"),
        ("models: [{model: a, certificate: none.json}]", "No such file"),
        ("models: {", "is no YAML"),
        ("- 3", "Expected `object`"),
        ("", "Expected `object`"),
    ],
)
def test_what_is_wrong_in_a_file_is_named_by_its_place(tmp_path: Path, content: str, problem: str) -> None:
    file = tmp_path / "models.yaml"
    file.write_text(content)
    error = refused(models_file=file)
    assert error.key == "MODELS_FILE"
    assert str(file) in error.problem
    assert problem in error.problem


def test_a_shadow_file_that_is_wrong_is_named(tmp_path: Path) -> None:
    file = tmp_path / "shadow.yaml"
    file.write_text("candidate: {rules: {slack: 0}}")
    error = refused(shadow_file=file)
    assert (error.key, error.problem) == (
        "SHADOW_FILE",
        f"{file}: candidate.rules.slack: 0.0: expected a finite number above 0, 1 at the most",
    )
    assert refused(shadow_file=tmp_path / "none.yaml").problem.endswith("No such file or directory")


@pytest.mark.parametrize(
    ("key", "content", "known"),
    [
        ("shadow_file", "{name: lean}", "unknown field `name`; there are candidate"),
        ("shadow_file", "candidate: {nam: lean}", "`$.candidate`; there are name, min_pods, max_pods"),
        ("models_file", "models: [{model: a, max_pod: 4}]", "`$.models[0]`; there are model, min_pods, max_pods"),
        ("models_file", "models: [{model: a, candidate: {slo_ms: 4}}]", "`; there are name, min_pods, max_pods"),
        ("models_file", "model: a", "unknown field `model`; there are models"),
    ],
)
def test_beside_a_field_that_is_none_stand_those_that_there_are(
    tmp_path: Path, key: str, content: str, known: str
) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(content)
    assert known in refused(**{key: file}).problem


def test_a_file_of_nothing_but_zeros_is_none(tmp_path: Path) -> None:
    file = tmp_path / "models.yaml"
    file.write_bytes(b"\x00" * 100)
    assert "is no YAML" in refused(models_file=file).problem
    file.write_bytes(b"\xff\xfe\xff")
    assert refused(models_file=file).key == "MODELS_FILE"


def test_a_certificate_that_is_broken_is_refused(certificate: Path) -> None:
    certificate.write_bytes(msgspec.json.encode({"version": 1, "model": "gec-en"}))
    assert "no capacity certificate" in refused(certificate=certificate).problem


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("models:\n- model: m\n  max_pods: 3\n  max_pods: 30\n", "'max_pods' is there twice"),
        ("models: [{model: m}]\nmodels: [{model: n}]\n", "'models' is there twice"),
        ("models:\n- model: 2026-13-45\n", "a value is none: month must be in 1..12"),
        ("[" * 5000, "is nested too deeply"),
        ("models: " + "[" * 5000, "is nested too deeply"),
        ("models: [{model: m, candidate: {name: live}}]", "candidate.name: 'live': expected a name of its own"),
        ("models: [{model: m, candidate: {name: dry-run}}]", "'dry-run': expected a name of its own"),
        ("models: [{model: m, slo_ms: 1.0e-300}]", "models[0].slo_ms: 1e-300: expected 1 to 600,000"),
        ("models: [{model: m, slo_ms: .inf}]", "models[0].slo_ms: inf: expected 1 to 600,000"),
        ("models: [{model: m, rate: 1.0e-300}]", "models[0].rate: 1e-300: expected 0.001 to 1,000,000"),
        ("models: [{model: m, cold_start_s: 1.0e+300}]", "models[0].cold_start_s: 1e+300: expected a finite"),
        ("models: [{model: m, rules: {growth_ratio: 1.0e+308}}]", "rules.growth_ratio: 1e+308: expected a finite"),
        ("models: [{model: m, rules: {shrink_share: 50}}]", "rules.shrink_share: 50.0: expected a finite number"),
        ("models: [{model: m, rules: {most_share: 1.0e-300, least_share: 1.0e-300}}]", "0.01 (least_share) to 1"),
    ],
)
def test_nonsense_in_a_models_file_is_refused_with_its_place(tmp_path: Path, content: str, problem: str) -> None:
    file = tmp_path / "models.yaml"
    file.write_text(content)
    error = refused(models_file=file)
    assert error.key == "MODELS_FILE"
    assert f"{file}" in error.problem
    assert problem in error.problem


def test_a_key_may_be_overridden_where_an_anchor_is_merged(tmp_path: Path) -> None:
    file = tmp_path / "models.yaml"
    file.write_text(
        "models:\n- &a {model: m, max_pods: 3}\n- {<<: *a, model: n}\n- {<<: *a, model: o, max_pods: 5}\n"
    )
    plans = load_plans(settings(models_file=file))
    assert [(plan.model, plan.live.limits.max_pods) for plan in plans] == [("m", 3), ("n", 3), ("o", 5)]


def test_a_models_file_that_is_no_file_is_refused_rather_than_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert refused(models_file=tmp_path / "pipe").problem.endswith("pipe: it is no file")
    assert refused(models_file=tmp_path).problem.endswith("Is a directory")


def test_what_is_assumed_of_a_pod_is_nothing_that_overflows() -> None:
    assert refused(rate=1e-300).key == "RATE"
    assert refused(concurrency=1e-300).key == "CONCURRENCY"
