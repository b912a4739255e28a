"""Settings that a model profile says: below variables, above defaults, refused by the place of what is wrong."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from copydesk.autoscaler.capacity import Capacity
from copydesk.autoscaler.plan import PlanError
from copydesk.autoscaler.plans import load_plans
from copydesk.autoscaler.rules import Rules
from copydesk.autoscaler.settings import AutoscalerSettings
from copydesk.common.messages import EndpointState, LoadReport
from copydesk.common.profile import (
    CapacityPart,
    CurvePoint,
    EnginePart,
    Interval,
    ModelPart,
    PrecisionPart,
    Profile,
    PromptPart,
    write_profile,
)
from copydesk.common.settings import load_settings
from copydesk.gateway.settings import GatewaySettings
from copydesk.gateway.weights import Weights
from copydesk.inference.checkpoint import read_digest
from copydesk.inference.pod.engine_loading import checked_digest
from copydesk.inference.pod.failure import CannotStartError
from copydesk.inference.settings import Draft, Dtype, InferenceSettings
from tests.fixtures.tiny_model import write_tiny_model

DIGEST, OTHER = "5e" * 32, "e5" * 32
PROFILE = Profile(
    model=ModelPart(name="letters", directory="model", digest=DIGEST),
    prompt=PromptPart(template="chat_template.jinja", digest="ab" * 32),
    precision=PrecisionPart(dtype="float32"),
    engine=EnginePart(slots=7, draft=False, draft_tokens=64, workers=2),
    capacity=CapacityPart(
        max_rate=40.0,
        interval=Interval(39.0, 41.0),
        concurrency=20.0,
        target_concurrency=12.0,
        objective_ms=800.0,
        hardware="Xeon",
        curve=(CurvePoint(5.0, 20.0), CurvePoint(20.0, 40.0), CurvePoint(30.0, 44.0)),
    ),
    cold_start_seconds=6.5,
    created_at=datetime.datetime(2026, 11, 30, tzinfo=datetime.UTC),
    tool="copydesk",
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "letters.yaml"
    write_profile(PROFILE, path)
    return path


def rewrite(path: Path, **changes: Any) -> None:
    write_profile(msgspec.structs.replace(PROFILE, **changes), path)


def test_a_pod_takes_what_no_variable_says(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COPYDESK_INFERENCE_PROFILE", str(path))
    monkeypatch.setenv("COPYDESK_INFERENCE_WORKERS", "3")
    settings = load_settings(InferenceSettings)
    assert (settings.model, settings.model_digest) == ("letters", DIGEST)
    assert settings.model_dir == (path.parent / "model").resolve()
    assert (settings.dtype, settings.slots, settings.draft, settings.draft_tokens) == (
        Dtype.FLOAT32,
        7,
        Draft.OFF,
        64,
    )
    assert settings.workers == 3
    assert settings.context == 512
    assert load_settings(InferenceSettings, slots=9).slots == 9


def test_without_a_profile_nothing_changes() -> None:
    assert GatewaySettings().model == "gec-en"
    assert load_settings(AutoscalerSettings).cold_start_s == 60.0


@pytest.mark.parametrize("settings", [InferenceSettings, GatewaySettings, AutoscalerSettings])
def test_a_profile_that_cannot_be_read_is_refused_by_its_variable(
    settings: type[InferenceSettings | GatewaySettings | AutoscalerSettings],
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    variable = f"{settings.model_config['env_prefix']}PROFILE"
    monkeypatch.setenv(variable, str(path))
    path.write_text(path.read_text().replace("slots: 7", "slots: many"))
    with pytest.raises(SystemExit) as caught:
        load_settings(settings)
    assert caught.value.code == 2
    assert f"{variable}: {path}: engine.slots: 'many'; expected int" in capsys.readouterr().err
    path.unlink()
    with pytest.raises(SystemExit):
        load_settings(settings)
    assert f"{variable}: {path}: No such file or directory" in capsys.readouterr().err


def test_a_value_that_a_pod_cannot_have_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rewrite(path, engine=EnginePart(slots=100_000))
    monkeypatch.setenv("COPYDESK_INFERENCE_PROFILE", str(path))
    with pytest.raises(SystemExit):
        load_settings(InferenceSettings)
    assert "COPYDESK_INFERENCE_SLOTS=100000: Input should be less than or equal to 1024" in capsys.readouterr().err


def test_an_engine_that_a_pod_does_not_have_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rewrite(path, engine=EnginePart(engine="abacus"))
    monkeypatch.setenv("COPYDESK_INFERENCE_PROFILE", str(path))
    with pytest.raises(SystemExit):
        load_settings(InferenceSettings)
    assert "'abacus'" in capsys.readouterr().err


def test_a_pod_does_not_start_with_other_weights(path: Path) -> None:
    directory = write_tiny_model(path.parent / "model")
    settings = load_settings(InferenceSettings, profile=path)
    with pytest.raises(CannotStartError) as caught:
        checked_digest(settings)
    found = read_digest(directory)
    assert caught.value.setting == "MODEL_DIR"
    assert caught.value.reason.endswith(f"has the digest {found}, and the profile {path} is for {DIGEST}")
    rewrite(path, model=msgspec.structs.replace(PROFILE.model, digest=found))
    assert checked_digest(load_settings(InferenceSettings, profile=path)) == found
    with pytest.raises(CannotStartError, match=f"and MODEL_DIGEST is for {OTHER}"):
        checked_digest(InferenceSettings(model_dir=directory, model_digest=OTHER))


def test_a_gateway_takes_model_and_digest(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COPYDESK_GATEWAY_PROFILE", str(path))
    settings = GatewaySettings()
    assert (settings.model, settings.model_digest) == ("letters", DIGEST)
    monkeypatch.setenv("COPYDESK_GATEWAY_MODEL", "b")
    assert GatewaySettings().model == "b"


def report(pod: str, digest: str) -> LoadReport:
    return LoadReport(
        model="letters",
        pod=pod,
        sequence=1,
        sent_at=1.0,
        started_at=1.0,
        host="127.0.0.1",
        port=1,
        state=EndpointState.READY,
        running=0,
        queued=0,
        capacity=1,
        step_ms=0.0,
        digest=digest,
    )


def test_a_gateway_counts_pods_with_other_weights() -> None:
    weights = Weights("letters", DIGEST)

    def others(*pods: str) -> float:
        families = {name: samples for name, _, _, samples in weights.families(pods)}
        assert list(families["expected_weights"]) == [((("model", "letters"), ("digest", DIGEST)), 1.0)]
        ((_, value),) = families["pods_of_other_weights"]
        return value

    assert others("a", "b") == 0.0
    for pod, digest in (("a", DIGEST), ("b", OTHER), ("c", OTHER), ("d", "")):
        weights.hear(report(pod, digest))
    assert others("a", "b", "c", "d") == 2.0
    assert others("a", "b") == 1.0  # the other one has gone
    weights.hear(report("b", DIGEST))
    assert others("a", "b") == 0.0


def test_a_gateway_that_expects_nothing_says_nothing() -> None:
    weights = Weights("letters", "")
    weights.hear(report("a", OTHER))
    assert list(weights.families(["a"])) == []


def test_the_autoscaler_takes_model_capacity_and_cold_start(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COPYDESK_AUTOSCALER_PROFILE", str(path))
    (plan,) = load_plans(load_settings(AutoscalerSettings))
    source = plan.live.source
    assert plan.model == "letters"
    assert plan.live.rules.cold_start_s == 6.5
    assert (source.digest, source.certificate, source.slo_ms) == (DIGEST, str(path), 800.0)
    assert source.capacity == Capacity(20.0, 40.0, 800.0, (0.0, 5.0, 20.0), (0.0, 0.5, 1.0))
    assert (plan.live.rules.least_share, plan.live.rules.most_share) == (0.5, 0.6)
    monkeypatch.setenv("COPYDESK_AUTOSCALER_COLD_START_S", "9")
    assert load_plans(load_settings(AutoscalerSettings))[0].live.rules.cold_start_s == 9.0


def test_the_autoscaler_assumes_what_a_profile_does_not_say(path: Path) -> None:
    rewrite(path, capacity=None, cold_start_seconds=None)
    (plan,) = load_plans(load_settings(AutoscalerSettings, profile=path, concurrency=12.0))
    assert plan.live.source.assumed
    assert plan.live.rules == Rules()


@pytest.mark.parametrize(
    ("settings", "key", "words"),
    [
        ({"model": "b"}, "PROFILE", "model.name: 'letters', and this is 'b'"),
        ({"model_digest": OTHER}, "PROFILE", "model.digest: "),
        ({"hardware": "Epyc"}, "PROFILE", "capacity.hardware: 'Xeon', and this is 'Epyc'"),
        ({"concurrency": 3.0}, "PROFILE", "neither concurrency nor rate is assumed"),
    ],
)
def test_a_profile_for_something_else_is_refused(
    settings: dict[str, Any], key: str, words: str, path: Path
) -> None:
    with pytest.raises(PlanError) as caught:
        load_plans(load_settings(AutoscalerSettings, profile=path, **settings))
    assert caught.value.key == key
    assert words in caught.value.problem


def test_each_of_several_models_may_have_a_profile(path: Path) -> None:
    models = path.parent / "models.yaml"
    models.write_text(
        "models:\n- model: letters\n  profile: letters.yaml\n  rules: {most_share: 0.7}\n"
        "- model: others\n  cold_start_s: 5\n- model: third\n"
    )
    letters, others, third = load_plans(load_settings(AutoscalerSettings, models_file=models))
    assert letters.live.source.capacity is not None
    assert (letters.live.rules.cold_start_s, letters.live.rules.most_share) == (6.5, 0.7)
    assert others.live.source.assumed
    assert (others.live.rules.cold_start_s, third.live.rules.cold_start_s) == (5.0, 60.0)
