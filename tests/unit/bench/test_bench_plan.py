import random
from pathlib import Path

import pytest

from copydesk.cli.bench.catalogue import all_settings
from copydesk.cli.bench.pod_contender import parse_metrics
from copydesk.cli.bench.schedule import load, order, share
from copydesk.cli.bench.setting import Setting, UnknownEngineError, select
from copydesk.cli.bench.vllm_contender import NGram, parse_counts
from copydesk.cli.bench.workload import WorkloadError, random_prompts, read_texts


def test_over_two_rounds_everybody_is_equally_far_from_the_beginning() -> None:
    items = list("abcde")
    for pair in range(4):
        rounds = [order(items, 2 * pair), order(items, 2 * pair + 1)]
        assert {rounds[0].index(item) + rounds[1].index(item) for item in items} == {4}
    assert order(items, 2) != order(items, 0)
    assert order([], 3) == []


@pytest.mark.parametrize(("count", "rounds"), [(120, 3), (7, 3), (2, 5)])
def test_the_rounds_together_send_each_text_once(count: int, rounds: int) -> None:
    assert [index for one in range(rounds) for index in share(count, rounds, one)] == list(range(count))


def test_many_users_get_several_turns_each_and_every_text_is_sent() -> None:
    assert load(10, 4) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]
    assert load(100, 4) == list(range(100))


def test_settings_are_chosen_by_engine_or_by_name() -> None:
    every = all_settings()
    assert select(every, []) == list(every)
    assert {one.engine for one in select(every, ["vllm", "openvino"])} == {"vllm", "openvino"}
    assert [one.name for one in select(every, ["copydesk int8 draft"])] == ["copydesk int8 draft"]


def test_an_unknown_engine_is_answered_with_those_that_exist() -> None:
    with pytest.raises(UnknownEngineError, match=r"'vlm'.*copydesk, vllm, .*vllm int8"):
        select(all_settings(), ["vllm", "vlm"])


def test_every_setting_has_a_name_of_its_own_and_its_plain_form_is_measured() -> None:
    every = all_settings([NGram(4, 3, 1), NGram(16, 3, 1)])
    names = [one.name for one in every]
    assert len(set(names)) == len(names)
    assert {one.plain_name for one in every} <= {one.name for one in every if one.is_plain}


def test_an_ngram_is_read_as_vllm_wants_it() -> None:
    ngram = NGram.parse("8:4:2")
    assert (ngram.tokens, ngram.longest, ngram.shortest, ngram.name) == (8, 4, 2, "ngram-8-4-2")
    assert '"prompt_lookup_max": 4' in ngram.option()


@pytest.mark.parametrize("text", ["8", "8:2:4", "0:2:1", "8:2:0", "a:b:c", "1:2:3:4"])
def test_what_is_no_ngram_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        NGram.parse(text)


def test_vllm_passes_are_its_first_tokens_and_the_intervals_after_them() -> None:
    text = (
        "# HELP vllm:inter_token_latency_seconds x\n"
        'vllm:inter_token_latency_seconds_bucket{engine="0",le="+Inf"} 36.0\n'
        'vllm:inter_token_latency_seconds_count{engine="0"} 36.0\n'
        'vllm:time_to_first_token_seconds_count{engine="0"} 4.0\n'
        'vllm:request_success_total{finished_reason="stop"} 3.0\n'
        'vllm:request_success_total{finished_reason="length"} 1.0\n'
    )
    before, after = parse_counts(""), parse_counts(text)
    assert (after.requests, after.passes) == (4.0, 40.0)
    assert after.since(before) == 10.0
    assert after.since(after) is None


def test_metrics_of_a_pod_are_summed_over_their_labels() -> None:
    text = (
        'copydesk_inference_requests_total{status="ok"} 3.0\n'
        'copydesk_inference_requests_total{status="invalid"} 1.0\n'
        "copydesk_inference_passes_total 7.0\n"
    )
    assert parse_metrics(text) == {
        "copydesk_inference_requests_total": 4.0,
        "copydesk_inference_passes_total": 7.0,
    }


def test_the_sentences_that_come_with_the_command_are_a_thousand() -> None:
    texts = read_texts(None, 1000)
    assert len(texts) == 1000
    assert all(texts)


def test_too_few_or_unreadable_texts_are_said(tmp_path: Path) -> None:
    file = tmp_path / "texts"
    file.write_text("One.\n\n  Two.  \n")
    assert read_texts(file, 2) == ["One.", "Two."]
    with pytest.raises(WorkloadError, match="2 sentences, and 3 are wanted"):
        read_texts(file, 3)
    with pytest.raises(WorkloadError, match="No such file"):
        read_texts(tmp_path / "none", 1)
    file.write_bytes(b"caf\xe9\n")
    with pytest.raises(WorkloadError, match="not UTF-8"):
        read_texts(file, 1)


def test_random_prompts_are_the_same_for_the_same_seed_and_stop_nowhere() -> None:
    first = random_prompts(3, 100, random.Random(1))
    assert first == random_prompts(3, 100, random.Random(1))
    assert {(len(one.tokens), one.max_tokens, one.stop_ids, one.text) for one in first} == {(50, 50, (), "")}
    assert all(0 <= token < 100 for one in first for token in one.tokens)


def test_a_setting_is_named_by_its_parts() -> None:
    setting = Setting("vllm", "int8", "ngram-8-4-2")
    assert (setting.name, setting.plain_name, setting.is_plain) == ("vllm int8 ngram-8-4-2", "vllm int8", False)
