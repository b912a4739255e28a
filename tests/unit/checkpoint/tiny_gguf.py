"""A tiny model in llama.cpp's format."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

Weights = dict[str, NDArray[np.float32]]

HEADS, KV_HEADS, HIDDEN, INTERMEDIATE, LAYERS = 4, 2, 64, 96, 2
WORDS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", *sorted("abcdehilnorst!Ġ"), "Ġt", "he", "Ġthe")
MERGES = ("Ġ t", "h e", "Ġt he")


def permute(weight: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """What llama.cpp's converter does to q and k: the two halves of each head become neighbouring pairs."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def random_weights() -> Weights:
    """Random weights under Hugging Face's names."""
    rng = np.random.default_rng(3)
    kv_width = HIDDEN // HEADS * KV_HEADS
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (len(WORDS), HIDDEN),
        "model.norm.weight": (HIDDEN,),
    }
    for layer in range(LAYERS):
        shapes |= {
            f"model.layers.{layer}.{name}.weight": shape
            for name, shape in {
                "input_layernorm": (HIDDEN,),
                "post_attention_layernorm": (HIDDEN,),
                "self_attn.q_proj": (HIDDEN, HIDDEN),
                "self_attn.k_proj": (kv_width, HIDDEN),
                "self_attn.v_proj": (kv_width, HIDDEN),
                "self_attn.o_proj": (HIDDEN, HIDDEN),
                "mlp.gate_proj": (INTERMEDIATE, HIDDEN),
                "mlp.up_proj": (INTERMEDIATE, HIDDEN),
                "mlp.down_proj": (HIDDEN, INTERMEDIATE),
            }.items()
        }
    return {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}


def write_gguf(path: Path, weights: Weights, architecture: str = "llama") -> Path:
    """Write `weights` as llama.cpp lays them out."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(LAYERS)
    writer.add_context_length(256)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INTERMEDIATE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(50000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(WORDS))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(list(WORDS))
    writer.add_token_types([3, 3, 3, *[1] * (len(WORDS) - 3)])
    writer.add_token_merges(list(MERGES))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    for name, weight in weights.items():
        _add_tensor(writer, name, weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tensor(writer: gguf.GGUFWriter, name: str, weight: NDArray[np.float32]) -> None:
    if "q_proj" in name:
        weight = permute(weight, HEADS)
    if "k_proj" in name:
        weight = permute(weight, KV_HEADS)
    kind = gguf.GGMLQuantizationType.Q8_0 if "_proj" in name else gguf.GGMLQuantizationType.F32
    writer.add_tensor(_llama_cpp_name(name), gguf.quants.quantize(weight, kind), raw_dtype=kind)


def _llama_cpp_name(name: str) -> str:
    for theirs, ours in {
        "model.embed_tokens": "token_embd",
        "model.norm": "output_norm",
        "model.layers": "blk",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }.items():
        name = name.replace(theirs, ours)
    return name
