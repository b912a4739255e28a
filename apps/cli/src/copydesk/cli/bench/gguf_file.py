"""The model as a GGUF file in 8 bits (Q8_0), which OpenVINO GenAI reads.

Names, keys and the order of rows are llama.cpp's: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copydesk.cli.bench.int8_checkpoint import read_weights

_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)\.weight")
_CONTROL, _NORMAL = 3, 1


def gguf_name(name: str) -> str:
    """What llama.cpp calls a tensor of Hugging Face's Llama; KeyError if there is none such."""
    if match := _LAYER.fullmatch(name):
        return f"blk.{match[1]}.{_LAYER_NAMES[match[2]]}.weight"
    return _NAMES[name]


def permute(weight: NDArray[Any], heads: int) -> NDArray[Any]:
    """Reorder the rows of a q or k projection: llama.cpp rotates neighbours where Hugging Face rotates halves."""
    rows, columns = weight.shape
    halves = weight.reshape(heads, 2, rows // heads // 2, columns)
    return halves.swapaxes(1, 2).reshape(rows, columns)


def write_gguf(source: Path, target: Path) -> None:
    """Write the model of the Hugging Face directory `source` into the file `target`."""
    from gguf import GGMLQuantizationType, GGUFWriter, quants

    config = json.loads((source / "config.json").read_text())
    writer = GGUFWriter(target, "llama")
    _write_shape(writer, config)
    _write_vocabulary(writer, config, json.loads((source / "tokenizer.json").read_text()))
    for name, stored in read_weights(source).items():
        weight = stored.astype(np.float32)
        if name.endswith("q_proj.weight"):
            weight = permute(weight, config["num_attention_heads"])
        elif name.endswith("k_proj.weight"):
            weight = permute(weight, config["num_key_value_heads"])
        if weight.ndim == 1:
            writer.add_tensor(gguf_name(name), weight)
            continue
        kind = GGMLQuantizationType.Q8_0
        writer.add_tensor(gguf_name(name), quants.quantize(weight, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_shape(writer: Any, config: dict[str, Any]) -> None:
    from gguf import LlamaFileType

    writer.add_name("copydesk bench")
    writer.add_file_type(LlamaFileType.MOSTLY_Q8_0)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])


def _write_vocabulary(writer: Any, config: dict[str, Any], tokenizer: dict[str, Any]) -> None:
    by_id = {index: token for token, index in tokenizer["model"]["vocab"].items()}
    control = {entry["id"] for entry in tokenizer["added_tokens"] if entry["special"]}
    by_id |= {entry["id"]: entry["content"] for entry in tokenizer["added_tokens"]}
    merges = tokenizer["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([by_id[index] for index in range(config["vocab_size"])])
    writer.add_token_types([_CONTROL if index in control else _NORMAL for index in range(config["vocab_size"])])
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    if "pad_token_id" in config:
        writer.add_pad_token_id(config["pad_token_id"])
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(False)
