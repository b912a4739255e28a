"""A whole search against a queue in virtual time, what is kept of it, and the certificate."""

from __future__ import annotations

import math
import random
from pathlib import Path

import msgspec
import pytest

from copydesk.loadtest.certificate import (
    Certificate,
    CertificateError,
    CurvePoint,
    Hardware,
    Interval,
    decode,
    digest_of,
    encode,
    read_certificate,
    write_certificate,
)
from copydesk.loadtest.examination import certify, examine, scope_of
from copydesk.loadtest.ground import Scouted, Timing, arrivals, batch_shapes
from copydesk.loadtest.record import Record, RecordError, Subject, read_record, write_record
from copydesk.loadtest.search import LONGEST, Found, Measure, Purpose
from copydesk.loadtest.trial import Trial
from copydesk.loadtest.verdict import Judgement, Rules, Verdict
from tests.unit.loadtest.queue_server import QueueGround, highest_rate
from tests.unit.loadtest.virtual_time import run_virtually

RULES = Rules(slo_ms=200.0)
SUBJECT = Subject(
    url="http://here", model="m", model_digest="d", pods=2, config={"slots": "4"}, hardware=Hardware(name="cpu")
)


def fresh(start: float | None = None, seed: int = 3) -> Record:
    scouted = Scouted(best_ms=18.0, alone_ms=20.0, batch_rate=200.0)
    scope = scope_of(scouted, limit=1e6, precision=0.03, processes=2, start=start)
    return Record(subject=SUBJECT, rules=RULES, timing=Timing(seconds=10), scope=scope, scouted=scouted, seed=seed)


def exponential(rng: random.Random) -> float:
    return rng.expovariate(1 / 0.02)


def searched(record: Record, ground: QueueGround) -> tuple[Record, Found]:
    record, end = run_virtually(
        examine(record, ground, on_step=lambda step: None, on_trial=lambda record, trial, judgement: None)
    )
    assert isinstance(end, Found)
    return record, end


def test_the_queue_of_the_tests_is_that_of_the_theory() -> None:
    rate = highest_rate(4, 0.02, 0.05, 0.15)
    step = Measure(rate, LONGEST, 1, Purpose.CURVE)
    trial = run_virtually(QueueGround(4, exponential, seconds=100.0, slo_ms=50.0).trial(step, "a"))
    assert trial.arrivals > 50_000
    assert trial.misses / trial.arrivals == pytest.approx(0.15, rel=0.12)


def test_the_capacity_of_a_queue_is_found_near_what_theory_says_and_the_interval_holds_it() -> None:
    true = highest_rate(4, 0.02, 0.2, 0.01)
    answers = []
    for seed in range(8):
        _, found = searched(fresh(seed=seed), QueueGround(4, exponential))
        assert found.bounded_by == "fleet"
        assert found.trial.rate == pytest.approx(true, rel=0.08)
        assert found.low <= true <= (found.high or math.inf)
        answers.append(found.trial.rate)
    assert sum(answers) / len(answers) == pytest.approx(true, rel=0.04)


def test_the_certificate_tells_on_how_many_requests_it_rests() -> None:
    record, found = searched(fresh(), QueueGround(4, exponential))
    evidence = certify(record, found, 1.0).evidence
    assert evidence is not None
    assert (evidence.requests, evidence.misses) == (found.trial.arrivals, found.trial.misses)
    assert found.trial.misses / found.trial.arrivals < evidence.miss_bound < RULES.slow_share
    assert evidence.requests_up_to > evidence.requests
    assert evidence.faults == 0
    assert evidence.fault_bound == pytest.approx(3.0 / evidence.requests_up_to, rel=0.01)


def test_a_search_that_was_interrupted_anywhere_ends_in_the_same_certificate() -> None:
    record, found = searched(fresh(), QueueGround(4, exponential))
    whole = certify(record, found, 1.0)
    for kept in (1, len(record.trials) // 2, len(record.trials) - 1):
        cut = msgspec.structs.replace(record, trials=record.trials[:kept])
        resumed, found_again = searched(cut, QueueGround(4, exponential))
        assert certify(resumed, found_again, 1.0) == whole


def test_every_trial_is_told_and_kept_as_it_ends() -> None:
    told: list[tuple[Purpose | None, int, Verdict]] = []
    purposes: list[Purpose] = []

    def on_trial(record: Record, trial: Trial, judgement: Judgement) -> None:
        assert record.trials[-1] is trial
        told.append((purposes[-1], len(record.trials), judgement.verdict))

    run_virtually(
        examine(
            fresh(),
            QueueGround(4, exponential),
            on_step=lambda step: purposes.append(step.purpose),
            on_trial=on_trial,
        )
    )
    assert [count for _, count, _ in told] == list(range(1, len(told) + 1))
    assert told[0][0] is Purpose.DOUBLE


def test_the_certificate_says_what_the_trials_said() -> None:
    record, found = searched(fresh(), QueueGround(4, exponential))
    certificate = certify(record, found, 12.0)
    assert certificate.rate == found.trial.rate
    assert certificate.rate_per_pod == found.trial.rate / 2
    # Little's law: in flight are rate times latency.
    assert certificate.concurrency == pytest.approx(found.trial.concurrency)
    assert 4 < certificate.concurrency < 25
    assert (certificate.model, certificate.pods, certificate.slo_ms) == ("m", 2, 200.0)
    assert certificate.config_digest == digest_of({"slots": "4"})
    points = certificate.curve
    assert found.trial.rate in [point.rate for point in points]
    assert [point.concurrency for point in points] == sorted(point.concurrency for point in points)
    assert points[0].rate < 0.3 * certificate.rate
    assert points[-1].p99_ms > 2 * points[0].p99_ms
    assert decode(encode(certificate), "it") == certificate


def test_trials_that_refused_or_could_not_keep_up_are_not_on_the_curve() -> None:
    record, found = searched(fresh(), QueueGround(4, exponential))
    broken = msgspec.structs.replace(record.trials[0], rate=11.0, errors=50)
    late = msgspec.structs.replace(record.trials[0], rate=12.0, late_p99_ms=50.0)
    more = certify(msgspec.structs.replace(record, trials=(*record.trials, broken, late)), found, 12.0)
    assert not {11.0, 12.0} & {point.rate for point in more.curve}


def test_arrivals_of_a_trial_fill_its_window_exactly() -> None:
    window = Timing(seconds=2.0, arrivals=300, warm_s=1.0).window(rate=70.0, length=2)
    assert window.begin == 1.0
    assert window.seconds == pytest.approx(600 / 70)
    offsets = arrivals(70.0, window, 0.5, random.Random(1))
    assert sum(window.begin <= offset < window.end for offset in offsets) == 600
    assert list(offsets) == sorted(offsets)
    assert offsets[0] < 1.0 < window.end < offsets[-1] <= window.end + 0.5


def test_batches_of_every_power_of_two_are_warmed_and_the_largest() -> None:
    assert batch_shapes(48) == (1, 2, 4, 8, 16, 32, 48)
    assert batch_shapes(64) == (1, 2, 4, 8, 16, 32, 64)
    assert batch_shapes(1) == (1,)


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    record, _ = searched(fresh(), QueueGround(4, exponential))
    write_record(record, tmp_path / "new" / "state.json")
    assert read_record(tmp_path / "new" / "state.json") == record
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["state.json"]


def test_a_record_that_is_none_is_refused_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"none\.json: No such file"):
        read_record(tmp_path / "none.json")
    (tmp_path / "other.json").write_text('{"a": 1}')
    with pytest.raises(RecordError, match="no record of a capacity search"):
        read_record(tmp_path / "other.json")
    newer = msgspec.json.encode(msgspec.structs.replace(fresh(), version=2))
    (tmp_path / "newer.json").write_bytes(newer)
    with pytest.raises(RecordError, match="version 2, expected 1"):
        read_record(tmp_path / "newer.json")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"url": "http://there"}, "another url: http://here, and this is http://there"),
        ({"model_digest": "e"}, "another model digest"),
        ({"pods": 3}, "another number of pods: 2, and this is 3"),
        ({"config": {}}, "another configuration"),
        ({"hardware": Hardware(name="gpu")}, "another hardware: cpu, and this is gpu"),
    ],
)
def test_a_search_is_not_gone_on_with_at_another_fleet(change: dict[str, object], what: str) -> None:
    fresh().require("state.json", SUBJECT, RULES)
    with pytest.raises(RecordError, match=what):
        fresh().require("state.json", msgspec.structs.replace(SUBJECT, **change), RULES)


def test_a_search_is_not_gone_on_with_for_another_objective() -> None:
    with pytest.raises(RecordError, match="another objective: 200 ms, and this is 300 ms"):
        fresh().require("state.json", SUBJECT, Rules(slo_ms=300.0))


def certificate(**changes: object) -> Certificate:
    plain = Certificate(
        model="m",
        model_digest="d",
        config_digest="c",
        hardware=Hardware(name="cpu"),
        slo_ms=1000.0,
        rate=50.0,
        concurrency=20.0,
        interval=Interval(48.0, 52.0),
        curve=(CurvePoint(rate=10.0, concurrency=1.0, p50_ms=90.0, p99_ms=150.0),),
        made_at=1.0,
    )
    return msgspec.structs.replace(plain, **changes)


def test_a_certificate_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "capacity.json"
    for one in (certificate(), certificate(interval=Interval(0.0, None), bounded_by="limit")):
        write_certificate(one, path)
        assert read_certificate(path) == one


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"rate": 0.0}, "rate is 0.0, expected a finite number above 0"),
        ({"pods": 0}, "pods is 0"),
        ({"pods": 10**400}, "pods is 1000"),
        ({"rate": 5e-324, "interval": Interval(0.0, None), "pods": 2}, "rate is 5e-324"),
        ({"concurrency": 1e300}, "concurrency is 1e+300"),
        ({"interval": Interval(51.0, 52.0)}, "interval is 51 to 52.0, expected to hold the rate, 50"),
        ({"curve": ()}, "curve is empty"),
        ({"curve": (CurvePoint(rate=1, concurrency=1, p50_ms=0, p99_ms=1),)}, "not above 0"),
        ({"curve": certificate().curve * 2}, "does not ascend"),
        ({"version": 2}, "version 2 of a capacity certificate, expected 1"),
    ],
)
def test_a_certificate_that_contradicts_itself_is_refused(changes: dict[str, object], reason: str) -> None:
    with pytest.raises(CertificateError, match=r"capacity\.json: ") as caught:
        decode(encode(certificate(**changes)), "capacity.json")
    assert reason in caught.value.reason
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("content", [b"", b"[]", b'{"version": 1}', b'{"version": "one"}'])
def test_what_is_no_certificate_is_refused(content: bytes) -> None:
    with pytest.raises(CertificateError, match="no capacity certificate"):
        decode(content, "x.json")


def test_a_certificate_is_only_for_what_it_was_made_for() -> None:
    certificate().require("c.json", model="m", model_digest="d", config_digest="c", hardware="cpu")
    certificate().require("c.json")
    with pytest.raises(CertificateError, match="made for another model: 'm', and this is 'n'"):
        certificate().require("c.json", model="n")
    with pytest.raises(CertificateError, match="another hardware: 'cpu', and this is 'H100'"):
        certificate().require("c.json", hardware="H100")


def test_the_digest_of_a_configuration_does_not_depend_on_its_order() -> None:
    assert digest_of({"a": "1", "b": "2"}) == digest_of({"b": "2", "a": "1"}) != digest_of({"a": "12"})


def test_what_is_nested_beyond_reason_is_no_certificate() -> None:
    with pytest.raises(CertificateError, match="no capacity certificate: maximum recursion"):
        decode(b'{"version": 1, "x": ' + b"[" * 100_000, "capacity.json")
