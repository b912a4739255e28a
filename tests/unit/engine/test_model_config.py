import json
import os
from pathlib import Path
from typing import Any

import pytest

from copydesk.inference.engine.native import UnreadableModelError, UnsupportedModelError
from copydesk.inference.engine.native.config import ModelConfig, read_config
from copydesk.inference.engine.native.rope import Rope, RopeKind

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}


def read(directory: Path, **changes: Any) -> ModelConfig:
    file = {key: value for key, value in {**LLAMA, **changes}.items() if value != "absent"}
    (directory / "config.json").write_text(json.dumps(file))
    return read_config(directory)


def test_a_llama_is_read_with_the_defaults_of_its_kind(tmp_path: Path) -> None:
    assert read(tmp_path) == ModelConfig(
        vocabulary=100,
        hidden=48,
        intermediate=96,
        layers=2,
        heads=6,
        kv_heads=2,
        head_dim=8,
        positions=256,
        norm_epsilon=1e-6,
        rope=Rope(theta=10_000.0),
        tied=False,
    )
    assert read(tmp_path).group == 3


def test_every_query_head_has_its_own_keys_unless_told(tmp_path: Path) -> None:
    assert read(tmp_path, num_key_value_heads="absent").kv_heads == 6


def test_the_head_size_can_differ_from_an_even_share(tmp_path: Path) -> None:
    assert read(tmp_path, head_dim=20).head_dim == 20
    assert read(tmp_path, head_dim=None).head_dim == 8


def test_rope_is_read_in_the_old_and_the_new_notation(tmp_path: Path) -> None:
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    expected = Rope(5e5, RopeKind.LLAMA3, 8.0, 1.0, 4.0, 64)
    scaling["original_max_position_embeddings"] = 64
    assert read(tmp_path, rope_theta=500000, rope_scaling=scaling).rope == expected
    assert read(tmp_path, rope_parameters={**scaling, "rope_theta": 500000}).rope == expected
    assert read(tmp_path, rope_scaling={"type": "linear", "factor": 2}).rope == Rope(
        kind=RopeKind.LINEAR, factor=2.0
    )


def test_biases_are_where_each_architecture_has_them(tmp_path: Path) -> None:
    llama = read(tmp_path, attention_bias=True, mlp_bias=True)
    assert (llama.qkv_bias, llama.output_bias, llama.mlp_bias) == (True, True, True)
    qwen = read(tmp_path, architectures=["Qwen2ForCausalLM"])
    assert (qwen.qkv_bias, qwen.output_bias, qwen.mlp_bias) == (True, False, False)


@pytest.mark.parametrize(
    ("changes", "positions"),
    [
        ({"architectures": ["MistralForCausalLM"], "max_position_embeddings": 32768}, 4096),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": None}, 256),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": 64}, 64),
        ({"architectures": ["Qwen2ForCausalLM"], "sliding_window": 64, "use_sliding_window": False}, 256),
        ({"architectures": ["Qwen2ForCausalLM"], "sliding_window": 64, "use_sliding_window": True}, 64),
    ],
)
def test_a_sliding_window_caps_the_positions(tmp_path: Path, changes: dict[str, Any], positions: int) -> None:
    assert read(tmp_path, **changes).positions == positions


@pytest.mark.parametrize(
    ("changes", "key", "value"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "architectures", ["GPT2LMHeadModel"]),
        ({"hidden_act": "gelu"}, "hidden_act", "gelu"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope_scaling.rope_type", "yarn"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor", 0.5),
        ({"num_key_value_heads": 4}, "num_key_value_heads", 4),
        ({"head_dim": 7}, "head_dim", 7),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config.quant_method", "gptq"),
    ],
)
def test_what_the_engine_does_not_compute_is_refused_by_name(
    tmp_path: Path, changes: dict[str, Any], key: str, value: object
) -> None:
    with pytest.raises(UnsupportedModelError) as raised:
        read(tmp_path, **changes)
    assert (raised.value.key, raised.value.value) == (key, value)


@pytest.mark.parametrize("changes", [{"hidden_size": "absent"}, {"hidden_size": "48"}, {"architectures": None}])
def test_a_missing_or_wrong_key_is_named(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(UnreadableModelError, match=next(iter(changes))):
        read(tmp_path, **changes)


def test_a_missing_or_broken_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableModelError) as raised:
        read_config(tmp_path)
    assert raised.value.path == tmp_path / "config.json"
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UnreadableModelError):
        read_config(tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *((key, value) for key in LLAMA if key != "architectures" for value in (0, -1, 10**30)),
        ("num_hidden_layers", 10**9),
        ("head_dim", 1 << 20),
        ("rms_norm_eps", -1.0),
        ("rope_theta", 0.0),
    ],
)
def test_sizes_that_no_model_has_are_refused_before_anything_is_made_of_them(
    tmp_path: Path, key: str, value: float
) -> None:
    with pytest.raises(UnsupportedModelError) as error:
        read(tmp_path, **{key: value})
    assert error.value.key == key


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"factor": 0.0}, "factor"),
        ({"low_freq_factor": 4.0}, "high_freq_factor"),
        ({"original_max_position_embeddings": 0}, "original_max_position_embeddings"),
    ],
)
def test_stretching_that_makes_no_rotations_is_refused(tmp_path: Path, changes: dict[str, Any], key: str) -> None:
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0} | changes
    with pytest.raises(UnsupportedModelError) as error:
        read(tmp_path, rope_scaling=scaling)
    assert error.value.key == f"rope_scaling.{key}"


def test_what_is_no_file_or_far_too_long_or_deep_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.symlink_to("/dev/zero")
    with pytest.raises(UnreadableModelError, match="is no file"):
        read_config(tmp_path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UnreadableModelError, match="is no file"):
        read_config(tmp_path)
    path.unlink()
    path.write_text('{"a":' * 100_000 + "1" + "}" * 100_000)
    with pytest.raises(UnreadableModelError, match="recursion"):
        read_config(tmp_path)
    os.truncate(path, (16 << 20) + 1)
    with pytest.raises(UnreadableModelError, match="bytes long"):
        read_config(tmp_path)
