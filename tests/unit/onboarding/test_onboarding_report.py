"""What onboarding writes: the profile, the arithmetic of pods, and the page for who decides."""

from __future__ import annotations

import datetime
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from copydesk.cli.capacity.picture import picture
from copydesk.cli.onboarding.making_profile import whole_profile
from copydesk.cli.onboarding.next_steps import NextSteps
from copydesk.cli.onboarding.report import Facts, page, verdict
from copydesk.cli.onboarding.search import Made, choose
from copydesk.cli.onboarding.sizing import rate_at_target, size_for
from copydesk.cli.onboarding.speed import Ratio, ratio_of
from copydesk.cli.onboarding.stages import Certified, Checked, ColdStart, Onboarded, Serving
from copydesk.cli.onboarding.tuning import DEFAULT, Measured, Setting, Tuned
from copydesk.common.profile import CapacityPart, Interval, read_profile, write_profile
from copydesk.common.profile.parts import CurvePoint as ProfilePoint
from copydesk.loadtest.certificate import Certificate, CurvePoint, Hardware, write_certificate
from copydesk.loadtest.certificate import Interval as CertificateInterval
from tests.unit.onboarding.found_things import CHOICE, DIGEST, evaluated, tried

ORIGINAL, INT8 = CHOICE.plans
NOW = datetime.datetime(2026, 11, 30, 20, tzinfo=datetime.UTC)
FACTS = Facts(
    made="today",
    command="copydesk model onboard <x>",
    steps=NextSteps("bin/copydesk", "/my out/p.yaml"),
    hardware="Xeon",
    quick=True,
)
VOID = {"meta", "br"}


def certificate() -> Certificate:
    return Certificate(
        model="letters",
        model_digest=DIGEST,
        config_digest="",
        hardware=Hardware(name="Xeon", cores=6),
        slo_ms=1000.0,
        rate=20.0,
        concurrency=8.0,
        interval=CertificateInterval(16.0, 22.0),
        curve=(
            CurvePoint(rate=10.0, concurrency=2.0, p50_ms=90.0, p99_ms=300.0),
            CurvePoint(rate=20.0, concurrency=8.0, p50_ms=200.0, p99_ms=900.0),
        ),
        made_at=0.0,
    )


def onboarded(folder: Path, *, capacity: bool = True, worse: bool = False) -> Onboarded:
    certified = None
    if capacity:
        write_certificate(certificate(), folder / "capacity.json")
        certified = Certified(
            file=str(folder / "capacity.json"), digest=DIGEST, rough=True, rate=20.0, concurrency=8.0
        )
    slots = Setting(name="slots=16", slots=16)
    measured = (Measured(setting=DEFAULT, rates=(10.0,)), Measured(setting=slots, failure="no <memory>"))
    original, int8 = tried(ORIGINAL, (10.0, 10.1, 9.9)), tried(INT8, (30.0, 30.3, 29.7))
    return Onboarded(
        checked=Checked(
            architecture="LlamaForCausalLM",
            parameters=100,
            bytes=400,
            template="chat_template.jinja",
            template_digest=DIGEST,
            warnings=("config.json: an odd <key>",),
        ),
        found=choose(
            [original, msgspec.structs.replace(int8, beside_original=ratio_of(int8.rates, original.rates))]
        ),
        serving=Serving(
            plan=INT8, made=Made(directory=str(folder / "model"), digest=DIGEST, bytes=200), setting=slots
        ),
        quality=evaluated(worse=worse),
        tuned=Tuned(setting=slots, why="surely faster than the default", measured=measured),
        certified=certified,
        cold_start=ColdStart(seconds=(4.0, 6.04)),
    )


def test_the_profile_says_what_was_found_and_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "profile.yaml"
    write_profile(whole_profile("letters", onboarded(tmp_path), path, NOW, "copydesk 1", "cpu"), path)
    profile = read_profile(path)
    assert (profile.model.name, profile.model.directory, profile.model.digest) == ("letters", "model", DIGEST)
    assert (profile.precision.scheme, profile.precision.dtype) == ("int8", "int8")
    assert (profile.engine.slots, profile.engine.draft, profile.engine.device) == (16, None, None)
    assert profile.cold_start_seconds == 6.0
    assert profile.quality is not None
    assert profile.quality.verdict == "pass"
    assert profile.capacity is not None
    assert (profile.capacity.max_rate, profile.capacity.certificate is None) == (20.0, False)


def test_without_a_certificate_there_are_no_figures_of_capacity(tmp_path: Path) -> None:
    found = onboarded(tmp_path, capacity=False)
    profile = whole_profile("letters", found, tmp_path / "p.yaml", NOW, "copydesk 1", "cuda:0")
    assert profile.capacity is None
    assert profile.engine.device == "cuda:0"
    assert "what a pod holds was not measured" in verdict(profile, found)


def held(**changed: object) -> CapacityPart:
    part = CapacityPart(
        max_rate=20.0,
        interval=Interval(16.0, 22.0),
        concurrency=8.0,
        target_concurrency=5.0,
        objective_ms=1000.0,
        hardware="Xeon",
        curve=(ProfilePoint(2.0, 10.0), ProfilePoint(8.0, 20.0)),
    )
    return msgspec.structs.replace(part, **changed)


def test_pods_are_counted_at_the_load_of_quiet_times() -> None:
    assert rate_at_target(held()) == pytest.approx(15.0)
    size = size_for(100.0, held())
    assert (size.pods, size.cautious) == (7, 9)
    assert size_for(0.5, held()).pods == 1


def test_where_no_lower_end_is_known_nobody_guesses_one() -> None:
    assert size_for(100.0, held(interval=Interval(0.0, None))).cautious is None
    assert rate_at_target(held(curve=())) == pytest.approx(12.5)


class Balanced(HTMLParser):
    """Notes what is open, what is not closed in its order, and what comes from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.elsewhere: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elsewhere += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """SVG closes its elements so."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_is_whole_needs_nothing_else_and_tells_what_matters(tmp_path: Path) -> None:
    found = onboarded(tmp_path)
    profile = whole_profile("letters", found, tmp_path / "p.yaml", NOW, "copydesk 1", "cpu")
    content = page(profile, found, FACTS, certificate(), picture(certificate()))
    reader = Balanced()
    reader.feed(content)
    assert reader.open == []
    assert reader.elsewhere == []
    assert "<script" not in content
    for told in (
        "letters can serve as int8, with no more loss than allowed, 3.0 times as fast",
        "one pod on this hardware holds roughly 20 requests a second with 99 % answered within 1000 ms",
        "100 / ",
        "This certificate is rough",
        "The pod had all 6 cores of a machine.",
        "config.json: an odd <key>",
        "no <memory>",
        "bin/copydesk up --profile '/my out/p.yaml'",
        "bin/copydesk up --candidate '/my out/p.yaml'",
        "bin/copydesk model rollout --candidate '/my out/p.yaml'",
        "anything on an accelerator",
    ):
        assert told in reader.text
    assert content.count("<caption>") == content.count("<table>")


def test_a_ratio_of_which_little_is_known_is_told_with_its_interval(tmp_path: Path) -> None:
    found = onboarded(tmp_path)
    profile = whole_profile("letters", found, tmp_path / "p.yaml", NOW, "copydesk 1", "cpu")
    original, int8 = found.found.tried if found.found is not None else ()
    doubtful = msgspec.structs.replace(int8, beside_original=Ratio(value=90.8, low=20.5, high=402.1))
    unsure = msgspec.structs.replace(found, found=choose([original, doubtful]))
    assert "90.8 times (20.5 to 402) as fast" in verdict(profile, unsure)


def test_the_default_model_is_not_rolled_out_beside_itself(tmp_path: Path) -> None:
    found = onboarded(tmp_path)
    profile = whole_profile("letters", found, tmp_path / "p.yaml", NOW, "copydesk 1", "cpu")
    facts = msgspec.structs.replace(FACTS, steps=NextSteps("copydesk", "/p.yaml", default=True))
    content = page(profile, found, facts)
    assert "copydesk up --profile /p.yaml" in content
    assert "--candidate" not in content


def test_the_page_shows_sentences_that_changed_as_text(tmp_path: Path) -> None:
    found = onboarded(tmp_path, worse=True)
    profile = whole_profile("letters", found, tmp_path / "p.yaml", NOW, "copydesk 1", "cpu")
    content = page(profile, found, FACTS)
    assert "<del>" in content
    assert "&lt;home&gt;" in content
    assert "quality.html has all of them" in content
