"""A local fleet by a model profile, and what stands between a profile and its certificate."""

from __future__ import annotations

import datetime
import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from copydesk.cli.capacity.subject import hardware_at
from copydesk.cli.commands.up import CannotStartError, Figures, check_profile, doubt
from copydesk.cli.fleet.plan import Candidate, Scaling, plan_autoscaler, plan_fleet
from copydesk.cli.fleet.report import render
from copydesk.cli.fleet.scaling import Limits
from copydesk.cli.fleet.session import _starting
from copydesk.cli.main import app
from copydesk.common.profile import EnginePart, ModelPart, Profile, ProfileError, PromptPart, write_profile
from copydesk.inference.checkpoint import read_digest
from copydesk.loadtest.certificate import Certificate, CurvePoint, Hardware, Interval, write_certificate
from copydesk.loadtest.profiled import capacity_part, certificate_of
from tests.fixtures.fleet_options import OPTIONS as PLAIN
from tests.fixtures.tiny_model import write_tiny_model

HERE = hardware_at("http://127.0.0.1", None).name
OPTIONS = replace(PLAIN, model="letters", model_dir=Path("/models/letters"), profile=Path("/letters.yaml"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A profile of a model that is there, with a certificate of this machine."""
    directory = write_tiny_model(tmp_path / "letters")
    certificate = Certificate(
        model="letters",
        model_digest=read_digest(directory),
        config_digest="c",
        hardware=Hardware(name=HERE),
        slo_ms=900.0,
        rate=40.0,
        concurrency=20.0,
        interval=Interval(38.0, None),
        curve=(
            CurvePoint(rate=10.0, concurrency=2.0, p50_ms=10.0, p99_ms=20.0),
            CurvePoint(rate=60.0, concurrency=90.0, p50_ms=800.0, p99_ms=2000.0),
        ),
        made_at=1.0,
        pods=2,
    )
    file = tmp_path / "figures" / "capacity.json"
    file.parent.mkdir()
    write_certificate(certificate, file)
    path = tmp_path / "letters.yaml"
    profile = Profile(
        model=ModelPart(name="letters", directory="letters", digest=certificate.model_digest),
        prompt=PromptPart(template="chat_template.jinja", digest="ab" * 32),
        engine=EnginePart(threads=3),
        capacity=capacity_part(certificate, file, path),
        created_at=datetime.datetime(2026, 11, 30, tzinfo=datetime.UTC),
        tool="copydesk",
    )
    write_profile(profile, path)
    return path


def read(path: Path) -> Profile:
    from copydesk.common.profile import read_profile

    return read_profile(path)


def test_every_service_that_reads_a_profile_is_given_it() -> None:
    specs = {spec.name: spec.env for spec in plan_fleet(OPTIONS)}
    assert specs["pod-2"]["COPYDESK_INFERENCE_PROFILE"] == "/letters.yaml"
    assert "COPYDESK_INFERENCE_DTYPE" not in specs["pod-2"]
    assert specs["gateway"]["COPYDESK_GATEWAY_PROFILE"] == "/letters.yaml"
    scaler = plan_autoscaler(OPTIONS, Scaling(Limits(1, 2)), 3.0)
    assert scaler.env["COPYDESK_AUTOSCALER_PROFILE"] == "/letters.yaml"


def test_what_is_asked_for_wins_over_the_profile() -> None:
    pod = plan_fleet(replace(OPTIONS, dtype="float32"))[2]
    assert pod.env["COPYDESK_INFERENCE_DTYPE"] == "float32"


def test_pods_share_the_cores_unless_the_profile_says_how_many_threads_they_have() -> None:
    assert OPTIONS.threads == 4
    assert replace(OPTIONS, pod_threads=3).threads == 3


def test_a_profile_of_what_is_here_is_taken(path: Path) -> None:
    found = check_profile(path, Scaling(Limits(1, 2)))
    assert (found.path, found.name, found.threads) == (path, "letters", 3)
    assert found.directory == (path.parent / "letters").resolve()


def test_a_candidate_runs_what_its_own_profile_says() -> None:
    candidate = Candidate(Path("/models/new"), 1, Path("/new.yaml"), threads=2)
    options = replace(OPTIONS, candidate=candidate, pod_threads=1, dtype="float32", engine="vllm")
    specs = {spec.name: spec.env for spec in plan_fleet(options)}
    assert (specs["pod-1"]["COPYDESK_INFERENCE_THREADS"], specs["pod-1"]["COPYDESK_INFERENCE_ENGINE"]) == (
        "1",
        "vllm",
    )
    assert specs["candidate-1"]["COPYDESK_INFERENCE_THREADS"] == "2"
    assert {"COPYDESK_INFERENCE_DTYPE", "COPYDESK_INFERENCE_ENGINE"}.isdisjoint(specs["candidate-1"])
    bare = plan_fleet(replace(options, candidate=Candidate(Path("/models/new"), 1)))[-2]
    assert bare.env["COPYDESK_INFERENCE_DTYPE"] == "float32"


def test_the_cold_start_of_a_profile_counts_before_that_of_the_first_pods() -> None:
    scaling = Scaling(Limits(1, 2))
    assert plan_autoscaler(OPTIONS, scaling, 3.0).env["COPYDESK_AUTOSCALER_COLD_START_S"] == "3.0"
    told = plan_autoscaler(replace(OPTIONS, cold_start=7.5), scaling, 3.0)
    assert told.env["COPYDESK_AUTOSCALER_COLD_START_S"] == "7.5"


def test_figures_of_pods_with_other_threads_are_doubted_and_it_says_how_to_get_right_ones(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("copydesk.cli.terminal.own_name", lambda: "copydesk")
    found = check_profile(path, Scaling(Limits(1, 2)))
    assert found.figures == Figures(path, 3)
    scaled = replace(OPTIONS, scaling=Scaling(Limits(1, 4)), figures=path, figures_threads=3)
    assert scaled.threads == 2
    line = doubt(scaled)
    assert "is of a pod with 3 threads, and in a fleet of up to 4 pods here each has 2 threads" in line
    assert "copydesk up --pods 4 --profile /letters.yaml, and beside it: copydesk capacity --profile" in line
    assert doubt(replace(scaled, pod_threads=3)) == ""
    assert doubt(replace(scaled, scaling=None)) == ""
    assert doubt(replace(scaled, figures_threads=0)) == ""


def test_a_profile_with_figures_is_no_assumption() -> None:
    scaled = replace(OPTIONS, scaling=Scaling(Limits(1, 4)))
    names = ("pod-1",)
    assert "is assumed" in render(_starting(scaled, Path("/logs"), names))
    assert "is assumed" not in render(_starting(replace(scaled, figures=Path("/p.yaml")), Path("/logs"), names))


def test_a_model_that_has_changed_since_is_refused(path: Path) -> None:
    (path.parent / "letters" / "chat_template.jinja").write_text("{{ messages[0].content }}")
    with pytest.raises(CannotStartError, match=r"letters.yaml: model.digest: "):
        check_profile(path, None)


def test_a_model_that_is_gone_is_refused(path: Path) -> None:
    (path.parent / "letters" / "config.json").unlink()
    with pytest.raises(CannotStartError, match=r"has no config\.json"):
        check_profile(path, None)


def test_figures_of_other_hardware_are_no_target_and_no_hindrance_without_one(path: Path) -> None:
    profile = read(path)
    assert profile.capacity is not None
    write_profile(
        msgspec.structs.replace(profile, capacity=msgspec.structs.replace(profile.capacity, hardware="Abacus")),
        path,
    )
    check_profile(path, None)
    check_profile(path, Scaling(Limits(1, 2), Path("capacity.json")))
    with pytest.raises(CannotStartError, match="'Abacus', and this is"):
        check_profile(path, Scaling(Limits(1, 2)))


def test_what_is_no_profile_is_refused_by_the_command(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("version: 1\n")
    line = ["up", "--profile", str(tmp_path / "p.yaml"), "--state-dir", str(tmp_path / "state"), "--port", "1"]
    result = CliRunner().invoke(app, [*line, "--model", "a"])
    assert (result.exit_code, "--model does too" in result.output) == (2, True)


def test_a_profile_takes_the_figures_of_one_pod(path: Path) -> None:
    part = read(path).capacity
    assert part is not None
    assert (part.max_rate, part.interval, part.concurrency, part.target_concurrency) == (
        20.0,
        (19.0, None),
        10.0,
        8.5,
    )
    assert part.curve == ((1.0, 5.0),)
    assert part.certificate is not None
    assert part.certificate.file == "figures/capacity.json"


def test_a_simulation_takes_certificate_and_cold_start_of_a_profile(path: Path) -> None:
    write_profile(msgspec.structs.replace(read(path), cold_start_seconds=12.0), path)
    line = ["simulate", "fleet", "--trace", "step", "--peak", "100", "--profile", str(path), "--json"]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["model"], found["hardware"]) == ("letters", HERE)
    refused = CliRunner().invoke(app, [*line, "--certificate", "capacity.json"])
    assert (refused.exit_code, "give one of the two" in refused.stderr) == (2, True)
    (path.parent / "figures" / "capacity.json").unlink()
    assert "capacity.certificate.file" in CliRunner().invoke(app, line).stderr


def test_the_certificate_of_a_profile_is_found_again(path: Path) -> None:
    assert certificate_of(read(path), path).rate == 40.0
    file = path.parent / "figures" / "capacity.json"
    file.write_bytes(file.read_bytes() + b" ")
    with pytest.raises(ProfileError, match=r"capacity.certificate.digest: .* has the SHA-256"):
        certificate_of(read(path), path)
    file.unlink()
    with pytest.raises(ProfileError, match=r"capacity.certificate.file: .*No such file"):
        certificate_of(read(path), path)
    write_profile(msgspec.structs.replace(read(path), capacity=None), path)
    with pytest.raises(ProfileError, match="it is missing, and is needed for latencies"):
        certificate_of(read(path), path)


def test_a_certificate_goes_into_the_profile_of_its_model_and_into_no_other(path: Path) -> None:
    whole, file = read(path), path.parent / "figures" / "capacity.json"
    write_profile(msgspec.structs.replace(whole, capacity=None), path)
    line = ["capacity", "--show", str(file), "--profile", str(path)]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 0, result.output
    assert read(path) == whole
    assert "target concurrency of a pod are in" in result.stderr

    write_profile(
        msgspec.structs.replace(whole, model=msgspec.structs.replace(whole.model, digest="ef" * 32)), path
    )
    before = path.read_bytes()
    result = CliRunner().invoke(app, line)
    assert (result.exit_code, "model.digest" in result.stderr) == (1, True)
    assert path.read_bytes() == before
