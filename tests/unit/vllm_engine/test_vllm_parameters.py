"""What vLLM is asked for: sampling, and how it is started."""

from pathlib import Path
from typing import Any

import pytest

from copydesk.inference.engine import GenerateTokens, InvalidSamplingError, Sampling
from copydesk.inference.engine.vllm.client import Acceptance
from copydesk.inference.engine.vllm.options import (
    UnreadableConfigError,
    UnservedOptionError,
    VllmOptions,
    cache_bytes,
    check_options,
    engine_arguments,
    read_config,
)
from copydesk.inference.engine.vllm.parameters import passes, require_drawable, sampling_parameters
from copydesk.inference.quantisation.scheme import Quantisation, Scheme, WeightScale, quantisation_config
from tests.fixtures.tiny_model import write_tiny_model

LLAMA = {
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "hidden_size": 576,
    "num_hidden_layers": 30,
    "max_position_embeddings": 2048,
    "torch_dtype": "bfloat16",
}


def asked(**fields: Any) -> dict[str, Any]:
    chosen: dict[str, Any] = {"prompt": [1, 2, 3], "max_tokens": 20, "stop_ids": [2], **fields}
    return sampling_parameters(GenerateTokens(**chosen), context=16, vocabulary=50)


def test_a_greedy_request_asks_for_the_likeliest_tokens_and_no_text() -> None:
    assert asked() == {
        "max_tokens": 13,
        "stop_token_ids": [2],
        "ignore_eos": True,
        "detokenize": False,
        "temperature": 0.0,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "seed": None,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
    }


def test_every_parameter_of_sampling_arrives() -> None:
    sampling = Sampling(0.7, 0.9, 40, 0.05, 123, 0.5, -0.5, 1.1)
    found = asked(sampling=sampling)
    assert {name: found[name] for name in Sampling.__struct_fields__} == {
        name: getattr(sampling, name) for name in Sampling.__struct_fields__
    }


def test_what_rules_nothing_out_of_a_greedy_answer_is_left_out() -> None:
    found = asked(sampling=Sampling(temperature=1e-6, top_p=0.5, top_k=3, min_p=0.5, frequency_penalty=1.0))
    assert (found["temperature"], found["top_p"], found["top_k"], found["min_p"]) == (0.0, 1.0, 0, 0.0)
    assert found["frequency_penalty"] == 1.0


def test_a_seed_of_64_bits_is_one_that_vllm_takes() -> None:
    assert asked(sampling=Sampling(temperature=1.0, seed=-1))["seed"] == 2**63 - 1
    assert asked(sampling=Sampling(temperature=1.0, seed=2**64 - 1))["seed"] == 2**63 - 1


def test_stop_ids_that_are_no_tokens_stop_nothing() -> None:
    assert asked(stop_ids=[-1, 2, 49, 50])["stop_token_ids"] == [2, 49]


def test_min_p_is_refused_only_where_it_means_something_and_vllm_drafts() -> None:
    require_drawable(Sampling(temperature=1.0, min_p=0.1), drafts=False)
    require_drawable(Sampling(temperature=0.0, min_p=0.1), drafts=True)
    with pytest.raises(InvalidSamplingError, match="DRAFT=off"):
        require_drawable(Sampling(temperature=1.0, min_p=0.1), drafts=True)


@pytest.mark.parametrize(
    ("tokens", "acceptance", "expected"),
    [
        (20, Acceptance(), 20),
        (20, Acceptance(verified=3, drafted=40, accepted=12), 8),
        (3, Acceptance(verified=1, drafted=16, accepted=16), 2),  # all but two of them behind the end
    ],
)
def test_passes_are_the_tokens_that_were_not_guessed(tokens: int, acceptance: Acceptance, expected: int) -> None:
    assert passes(tokens, acceptance) == expected


def test_on_a_cpu_the_cache_has_room_for_all_slots_in_whole_blocks() -> None:
    a_token = 2 * 30 * 3 * 64 * 2
    assert cache_bytes(VllmOptions(slots=4, context=512, draft=False), LLAMA) == (4 * 4 + 1) * 128 * a_token
    assert cache_bytes(VllmOptions(slots=4, context=512), LLAMA) == (4 * 5 + 1) * 128 * a_token
    assert cache_bytes(VllmOptions(dtype="float32", cache_tokens=600), LLAMA) == (5 + 1) * 128 * a_token * 2
    assert cache_bytes(VllmOptions(cache_tokens=1), LLAMA) == (5 + 1) * 128 * a_token
    assert cache_bytes(VllmOptions(), {}) == 1 << 30
    for lie in (
        {"num_key_value_heads": "3"},
        {"head_dim": [64]},
        {"hidden_size": True},
        {"num_hidden_layers": -1},
    ):
        assert cache_bytes(VllmOptions(), LLAMA | lie) == 1 << 30


def test_a_gpu_gives_a_share_of_its_memory_unless_the_cache_is_sized() -> None:
    gpu = VllmOptions(device="cuda:1", gpu_memory=0.5)
    assert engine_arguments(Path("m"), gpu, LLAMA)["gpu_memory_utilization"] == 0.5
    sized = engine_arguments(Path("m"), VllmOptions(device="cuda", cache_tokens=4096, draft=False), LLAMA)
    assert "gpu_memory_utilization" not in sized
    assert sized["kv_cache_memory_bytes"] == (4096 // 16 + 1) * 16 * 2 * 30 * 3 * 64 * 2


@pytest.mark.parametrize(
    ("options", "method", "asynchronous"),
    [
        (VllmOptions(), "ngram", None),
        (VllmOptions(device="cuda"), "ngram_gpu", None),
        (VllmOptions(device="cuda", asynchronous=False), "ngram", False),
        (VllmOptions(device="cuda", draft=False), None, None),
    ],
)
def test_guesses_are_made_in_the_way_that_keeps_scheduling_asynchronous(
    options: VllmOptions, method: str | None, asynchronous: bool | None
) -> None:
    arguments = engine_arguments(Path("m"), options, LLAMA)
    assert arguments.get("speculative_config", {}).get("method") == method
    assert arguments["async_scheduling"] is asynchronous


def test_sizes_and_the_rule_against_tokenizers_and_pickles_arrive() -> None:
    arguments = engine_arguments(Path("m"), VllmOptions(slots=3, context=99, eager=True), LLAMA)
    expected = {
        "model": "m",
        "max_num_seqs": 3,
        "max_model_len": 99,
        "enforce_eager": True,
        "skip_tokenizer_init": True,
        "load_format": "safetensors",
        "dtype": "auto",
    }
    assert {name: arguments[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("options", "option"),
    [
        (VllmOptions(dtype="int8"), "dtype"),
        (VllmOptions(device="null:5"), "device"),
        (VllmOptions(device="cudax"), "device"),
        (VllmOptions(device="cuda:-1"), "device"),
        (VllmOptions(context=4096), "context"),
    ],
)
def test_what_vllm_does_not_serve_is_told_by_its_name(options: VllmOptions, option: str) -> None:
    with pytest.raises(UnservedOptionError) as raised:
        check_options(options, LLAMA)
    assert raised.value.option == option
    check_options(VllmOptions(device="cuda:0"), LLAMA)


def in_8_bits(scheme: Scheme, scale: WeightScale) -> dict[str, Any]:
    return {**LLAMA, "quantization_config": quantisation_config(Quantisation(scheme, scale, ("lm_head",)))}


def test_fp8_of_one_scale_a_tensor_is_refused_on_a_cpu_alone() -> None:
    config = in_8_bits(Scheme.FP8, WeightScale.TENSOR)
    with pytest.raises(UnservedOptionError, match="one scale a tensor") as raised:
        check_options(VllmOptions(), config)
    assert raised.value.option == "device"
    check_options(VllmOptions(device="cuda"), config)


@pytest.mark.parametrize(
    "config",
    [
        in_8_bits(Scheme.FP8, WeightScale.CHANNEL),
        in_8_bits(Scheme.INT8, WeightScale.TENSOR),
        {**LLAMA, "quantization_config": {"quant_method": "awq", "config_groups": 4}},
        {**LLAMA, "quantization_config": None},
    ],
)
def test_other_checkpoints_in_8_bits_are_left_to_vllm(config: dict[str, Any]) -> None:
    check_options(VllmOptions(), config)


def test_a_directory_without_a_model_is_told_by_its_file(tmp_path: Path) -> None:
    with pytest.raises(UnreadableConfigError, match=r"config\.json"):
        read_config(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(UnreadableConfigError, match="object"):
        read_config(tmp_path)
    assert read_config(write_tiny_model(tmp_path))["model_type"] == "llama"
