from copydesk.cli.bench.figures import (
    CORRECTIONS,
    RANDOM,
    Figures,
    best_level,
    best_setting,
    figures,
    identity,
    level,
    levels,
    of_engine,
    random_ratios,
    ratios,
    reference,
)
from copydesk.cli.bench.measure import Measurement
from copydesk.cli.bench.setting import Setting

DRAFTED = Setting("copydesk", "int8", "draft")
PLAIN = Setting("copydesk", "int8")
THEIRS = Setting("vllm", "bf16")
LOOKUP = Setting("vllm", "bf16", "ngram-8-4-2")


def measured(
    setting: Setting,
    users: int,
    rate: float,
    latencies: tuple[float, ...] = (10.0,),
    *,
    passes: float | None = None,
    answers: tuple[tuple[int, str], ...] = (),
    workload: str = CORRECTIONS,
    failed: int = 0,
) -> Measurement:
    return Measurement(
        round=0,
        setting=setting.name,
        workload=workload,
        concurrency=users,
        requests_per_second=rate,
        latencies_ms=latencies,
        passes=passes,
        failed=failed,
        failures=(),
        answers=answers,
    )


def test_the_rate_is_the_median_of_the_rounds_and_quantiles_are_of_all_latencies_together() -> None:
    found = level([measured(PLAIN, 8, rate, (rate, rate + 100)) for rate in (1.0, 9.0, 2.0)])
    assert (found.requests_per_second, found.rate_by_round) == (2.0, (1.0, 9.0, 2.0))
    assert (found.p50_ms, found.p99_ms, found.requests) == (9.0, 109.0, 6)


def test_passes_are_averaged_over_the_rounds_and_unknown_where_the_engine_does_not_tell() -> None:
    assert level([measured(PLAIN, 1, 1, passes=2.0), measured(PLAIN, 1, 1, passes=4.0)]).passes_per_request == 3.0
    assert level([measured(PLAIN, 1, 1)]).passes_per_request is None


def test_levels_are_told_apart_by_users_setting_and_workload() -> None:
    every = [
        measured(PLAIN, 64, 5),
        measured(PLAIN, 1, 1),
        measured(DRAFTED, 1, 7),
        measured(PLAIN, 64, 9, workload=RANDOM),
    ]
    assert [(one.concurrency, one.requests_per_second) for one in levels(every, PLAIN.name, CORRECTIONS)] == [
        (1, 1.0),
        (64, 5.0),
    ]


def test_the_rate_that_counts_is_that_of_the_best_of_many_users_never_of_one() -> None:
    every = [
        measured(PLAIN, 1, 99, (10.0,), passes=46.0),
        measured(PLAIN, 64, 30, (500.0,), passes=45.0),
        measured(PLAIN, 128, 20, (900.0,)),
    ]
    found = figures(every, PLAIN)
    assert found is not None
    assert (found.requests_per_second, found.concurrency, found.p50_ms) == (30.0, 64, 10.0)
    assert (found.passes_per_request, found.saturated.p50_ms) == (46.0, 500.0)


def test_a_setting_that_did_not_answer_both_one_user_and_many_has_no_figures() -> None:
    assert figures([measured(PLAIN, 1, 5)], PLAIN) is None
    assert figures([measured(PLAIN, 64, 5)], PLAIN) is None
    assert figures([], PLAIN) is None


def test_identity_compares_with_the_plain_setting_one_at_a_time() -> None:
    every = [
        measured(PLAIN, 1, 1, answers=((0, "a"), (1, "b"))),
        measured(PLAIN, 8, 1, answers=((0, "x"), (1, "y"))),
        measured(DRAFTED, 1, 1, answers=((0, "z"),)),
        measured(DRAFTED, 8, 1, answers=((0, "a"), (1, "c"), (0, "a"), (2, "unknown"))),
    ]
    assert reference(every, DRAFTED) == {0: "a", 1: "b"}
    found = figures(every, DRAFTED)
    assert found is not None
    assert found.identical_to_greedy == 0.6667


def test_identity_is_unknown_where_the_plain_setting_was_not_measured() -> None:
    assert identity([(0, "a")], {}) is None


def table(**values: tuple[float, float, float | None]) -> dict[str, Figures]:
    found = {}
    for name, (rate, p50, passes) in values.items():
        one = level([measured(PLAIN, 64, rate)])
        found[name] = Figures(
            requests_per_second=rate,
            p50_ms=p50,
            p99_ms=2 * p50,
            passes_per_request=passes,
            identical_to_greedy=None,
            concurrency=64,
            saturated=one,
            levels=(one,),
        )
    return found


def test_each_ratio_takes_the_best_setting_of_either_side_and_names_both() -> None:
    ours = table(fast=(60.0, 50.0, 2.0), quick=(40.0, 20.0, 1.0))
    theirs = table(bf16=(10.0, 400.0, 40.0), int8=(20.0, 800.0, None))
    found = ratios(ours, theirs)
    assert (found.requests_per_second, found.p50_ms, found.passes_per_request) == (3.0, 0.05, 0.025)
    assert found.settings["requests_per_second"] == ("fast", "int8")
    assert found.settings["p50_ms"] == ("quick", "bf16")


def test_a_ratio_without_one_of_the_sides_is_unknown() -> None:
    found = ratios(table(ours=(1.0, 1.0, 1.0)), {})
    assert (found.requests_per_second, found.settings) == (None, {})
    assert ratios(table(ours=(1.0, 1.0, 1.0)), table(theirs=(2.0, 1.0, None))).identical_to_greedy is None


def test_the_best_is_the_highest_rate_and_the_lowest_latency() -> None:
    found = table(a=(1.0, 5.0, 3.0), b=(2.0, 9.0, None))
    assert best_setting(found, "requests_per_second") == "b"
    assert best_setting(found, "p50_ms") == "a"
    assert best_setting(found, "passes_per_request") == "a"
    assert best_setting({}, "p50_ms") is None


def test_settings_of_an_engine_can_be_narrowed_to_those_with_or_without_drafts() -> None:
    every = [PLAIN, DRAFTED, THEIRS, LOOKUP]
    found = {setting.name: one for setting in every for one in table(x=(1.0, 1.0, 1.0)).values()}
    assert list(of_engine(found, every, "vllm")) == ["vllm bf16", "vllm bf16 ngram-8-4-2"]
    assert list(of_engine(found, every, "vllm", plain=True)) == ["vllm bf16"]
    assert list(of_engine(found, every, "vllm", plain=False)) == ["vllm bf16 ngram-8-4-2"]


def test_random_tokens_are_compared_with_vllm_in_bfloat16() -> None:
    found = {
        setting.name: best_level(levels([measured(setting, 8, rate, workload=RANDOM)], setting.name, RANDOM))
        for setting, rate in ((PLAIN, 30.0), (THEIRS, 12.0), (Setting("vllm", "int8"), 15.0))
    }
    assert random_ratios(found) == {"copydesk int8": 2.5}
    assert random_ratios({}) == {}
