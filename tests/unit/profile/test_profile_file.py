"""The model profile as a file: what is written is read back, and what is wrong is named."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from copydesk.common.profile import (
    CapacityPart,
    CertificatePart,
    CurvePoint,
    EnginePart,
    Interval,
    ModelPart,
    PrecisionPart,
    Profile,
    ProfileError,
    PromptPart,
    QualityPart,
    encode_profile,
    profile_of,
    read_profile,
    write_profile,
)

DIGEST = "5e" * 32
MADE = datetime.datetime(2026, 11, 30, 18, 0, tzinfo=datetime.UTC)
PROFILE = Profile(
    model=ModelPart(name="gec-en", directory="gec-en", digest=DIGEST, architecture="LlamaForCausalLM"),
    prompt=PromptPart(template="chat_template.jinja", digest="ab" * 32),
    precision=PrecisionPart(scheme="fp8", keep=("attention", "re:.*lm_head")),
    engine=EnginePart(slots=32, context=512, draft=True, draft_tokens=192),
    capacity=CapacityPart(
        max_rate=41.5,
        interval=Interval(40.0, None),
        concurrency=28.0,
        target_concurrency=23.8,
        objective_ms=1000.0,
        hardware="Xeon",
        curve=(CurvePoint(10.0, 20.0), CurvePoint(28.0, 41.5)),
        certificate=CertificatePart(file="capacity.json", digest="cd" * 32),
    ),
    cold_start_seconds=6.5,
    quality=QualityPart(verdict="pass", data="jfleg-dev", gleu=0.58, agreement=0.97),
    created_at=MADE,
    tool="copydesk 0.1.0",
)

digests = st.text("0123456789abcdef", min_size=64, max_size=64)
words = st.text(min_size=1, max_size=20)
figures = st.floats(1e-6, 1e9)
several = st.integers(1, 1 << 20)
shares = st.floats(0, 1)


@st.composite
def capacities(draw: st.DrawFn) -> CapacityPart:
    """Capacities that do not contradict themselves."""
    rate, concurrency = draw(figures), draw(figures)
    ascending = sorted(draw(st.sets(figures, max_size=5)))
    return CapacityPart(
        max_rate=rate,
        interval=Interval(draw(st.floats(0, rate)), draw(st.none() | st.floats(rate, 1e12))),
        concurrency=concurrency,
        target_concurrency=draw(st.floats(concurrency / 10, concurrency)),
        objective_ms=draw(figures),
        hardware=draw(words),
        miss_share=draw(shares),
        pods=draw(several),
        curve=tuple(CurvePoint(one, draw(figures)) for one in ascending),
        certificate=draw(st.none() | st.builds(CertificatePart, file=words, digest=digests)),
    )


profiles = st.builds(
    Profile,
    model=st.builds(
        ModelPart,
        name=st.from_regex(r"\A[A-Za-z0-9_-]{1,64}\Z"),
        directory=words,
        digest=digests,
        architecture=st.text(max_size=20),
        parameters=st.integers(0, 1 << 50),
        bytes=st.integers(0, 1 << 50),
    ),
    prompt=st.builds(PromptPart, template=words, digest=digests),
    precision=st.builds(
        PrecisionPart,
        scheme=st.sampled_from(["none", "fp8", "int8"]),
        per_tensor=st.booleans(),
        keep=st.lists(words, max_size=4).map(tuple),
        dtype=st.sampled_from(["auto", "int8", "off", "no"]),
    ),
    engine=st.builds(
        EnginePart,
        engine=st.sampled_from(["native", "vllm"]),
        device=st.none() | words,
        slots=st.none() | several,
        threads=st.none() | st.integers(0, 64),
        draft=st.none() | st.booleans(),
        draft_tokens=st.none() | several,
    ),
    capacity=st.none() | capacities(),
    cold_start_seconds=st.none() | st.floats(0.001, 3600),
    quality=st.none()
    | st.builds(QualityPart, verdict=words, data=words, gleu=st.none() | shares, agreement=st.none() | shares),
    created_at=st.datetimes(datetime.datetime(2000, 1, 1), timezones=st.just(datetime.UTC)),
    tool=words,
)


def plain() -> dict[str, Any]:
    """Return the profile above as a file's content, to be spoilt."""
    content: dict[str, Any] = yaml.safe_load(encode_profile(PROFILE))
    return content


def refusal(content: Any) -> ProfileError:
    with pytest.raises(ProfileError) as caught:
        profile_of(content, "p.yaml")
    return caught.value


@given(profiles)
def test_what_is_written_is_read_back(profile: Profile) -> None:
    assert profile_of(yaml.safe_load(encode_profile(profile)), "p.yaml") == profile


def test_a_file_is_replaced_whole_and_the_same_profile_gives_the_same_bytes(tmp_path: Path) -> None:
    path = tmp_path / "gec-en.yaml"
    path.write_text("something else")
    write_profile(PROFILE, path)
    first = path.read_bytes()
    write_profile(read_profile(path), path)
    assert read_profile(path) == PROFILE
    assert path.read_bytes() == first
    assert [one.name for one in tmp_path.iterdir()] == ["gec-en.yaml"]


def test_a_file_reads_as_people_write() -> None:
    text = encode_profile(PROFILE).decode()
    assert text.startswith("# A model profile of Copydesk")
    assert "  interval: [40.0, null]\n" in text
    assert "  - [10.0, 20.0]\n" in text
    assert "keep: [attention, 're:.*lm_head']" in text
    assert "threads" not in text  # what is not said is not written


@pytest.mark.parametrize(
    ("place", "value", "key", "problem"),
    [
        (("model", "digest"), "5e", "model.digest", "'5e'; expected 64 hexadecimal digits, a SHA-256"),
        (("model", "name"), "a b", "model.name", "'a b'; expected 1 to 64 letters, digits, '_' or '-'"),
        (("engine", "slots"), "32", "engine.slots", "'32'; expected int | null, got str"),
        (("engine", "slots"), 0, "engine.slots", "0; expected int >= 1"),
        (("engine", "slts"), 3, "engine.slts", "there is no such key; there are engine, device, engines, slots, "),
        (("colour",), "red", "colour", "there is no such key; there are version, model, prompt, precision, "),
        (("precision", "keep"), ["a", 3], "precision.keep[1]", "3; expected str, got int"),
        (("precision", "scheme"), "FP 8", "precision.scheme", "'FP 8'; expected a word in small letters"),
        (("capacity", "curve"), [[2.0, 1.0], [1.0, 2.0]], "capacity.curve", "expected to ascend in concurrency"),
        (("capacity", "curve"), [[2.0, -1.0]], "capacity.curve", "a point is not above 0 in both its figures"),
        (("capacity", "max_rate"), float("nan"), "capacity.max_rate", "nan; expected"),
        (("capacity", "max_rate"), float("inf"), "capacity.max_rate", "inf; expected float <="),
        (
            ("capacity", "interval"),
            [42.0, None],
            "capacity.interval",
            "[42, None]; expected to hold max_rate, 41.5",
        ),
        (
            ("capacity", "target_concurrency"),
            29.0,
            "capacity.target_concurrency",
            "29; expected at most concurrency, 28",
        ),
        (("created_at",), "yesterday", "created_at", "'yesterday'; "),
        (("created_at",), "2026-11-30T18:00:00", "created_at", "'2026-11-30T18:00:00'; expected"),
        (("version",), 2, "version", "2; this Copydesk reads 1: use a newer one"),
        (("version",), "1", "version", "'1'; expected 1"),
        (("version",), True, "version", "True; expected 1"),
    ],
)
def test_what_is_wrong_is_named_by_its_key(place: tuple[str, ...], value: Any, key: str, problem: str) -> None:
    content = plain()
    part = content
    for step in place[:-1]:
        part = part[step]
    part[place[-1]] = value
    error = refusal(content)
    assert error.key == key
    assert error.problem.startswith(problem)
    assert str(error).startswith(f"p.yaml: {key}: ")


def test_what_is_missing_is_named() -> None:
    content = plain()
    del content["model"]["digest"]
    assert str(refusal(content)) == "p.yaml: model.digest: it is missing"
    del content["version"]
    assert refusal(content).problem == "it is missing; expected 1"


def test_a_newer_version_is_refused_before_its_keys_are_looked_at() -> None:
    assert refusal({"version": 7, "shape": "other"}).key == "version"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("model: [", "it is no YAML"),
        ("version: 1\nversion: 1\n", "'version' is there twice"),
        ("- 1\n", "expected a mapping"),
        ("", "expected a mapping"),
        ("!!python/object:os.system {}", "it is no YAML"),
    ],
)
def test_a_file_that_is_no_profile_is_refused(content: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(content)
    with pytest.raises(ProfileError, match=problem):
        read_profile(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProfileError) as caught:
        read_profile(tmp_path / "p.yaml")
    assert str(caught.value) == f"{tmp_path / 'p.yaml'}: No such file or directory"


def test_a_profile_is_for_one_model_with_one_set_of_weights() -> None:
    PROFILE.require("p.yaml", model="gec-en", digest=DIGEST, hardware="Xeon")
    PROFILE.require("p.yaml")
    msgspec.structs.replace(PROFILE, capacity=None).require("p.yaml", hardware="Epyc")
    for wanted, key in (({"model": "b"}, "model.name"), ({"digest": "e5" * 32}, "model.digest")):
        with pytest.raises(ProfileError) as caught:
            PROFILE.require("p.yaml", **wanted)
        assert caught.value.key == key
    with pytest.raises(ProfileError, match=r"capacity.hardware: 'Xeon', and this is 'Epyc'"):
        PROFILE.require("p.yaml", hardware="Epyc")


def test_a_directory_is_looked_for_beside_the_profile(tmp_path: Path) -> None:
    assert PROFILE.model_directory(tmp_path / "p.yaml") == (tmp_path / "gec-en").resolve()
    model = msgspec.structs.replace(PROFILE.model, directory="/models/a")
    assert msgspec.structs.replace(PROFILE, model=model).model_directory(Path("p.yaml")) == Path("/models/a")
    assert PROFILE.identity == "gec-en@5e5e5e5e5e5e"
