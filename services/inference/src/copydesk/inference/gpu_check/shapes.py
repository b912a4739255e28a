"""Checkpoints of real shapes with made-up weights, for machines to which no real ones can be brought.

A *counting* model has layers of real size whose outputs are scaled down, and a head whose row t + 1 is the
embedding of t: after token t it says t + 1, whatever the precision. It takes the time that any model of its shape
takes, every answer can be told to be right, and a source that is like the answer can be written, so that drafts
come true as often as is wanted. A *random* model has nothing of that: every part of it moves its answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from copydesk.inference.quantisation.scheme import Quantisation, Scheme, WeightScale, quantisation_config

_FP8 = torch.float8_e4m3fn
_LIMIT = 448.0
_WHISPER = 0.02  # of what a layer would add to the residual stream
_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
END = 2


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of a Llama decoder whose heads have `head_dim` numbers."""

    name: str
    vocabulary: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int = 64
    positions: int = 2048


SMOLLM2_135M = Shape("SmolLM2-135M", 49152, 576, 1536, 30, 9, 3)
LLAMA_1B = Shape("Llama-1B", 128256, 2048, 8192, 16, 32, 8)
TINY = Shape("tiny", 512, 64, 128, 2, 4, 2, 16)
TINY_TOO = Shape("tiny-too", 512, 96, 128, 2, 6, 2, 16)
PARITY = Shape("random", 2048, 512, 1024, 6, 8, 2)


def write_counting(directory: Path, shape: Shape, *, fp8: bool, device: torch.device) -> Path:
    """Write a counting model: in bfloat16, or its linear maps in FP8 with a scale for each output."""
    random = torch.Generator(device).manual_seed(1)
    embedding = torch.randn(shape.vocabulary, shape.hidden, generator=random, device=device)
    tensors = {
        "model.embed_tokens.weight": embedding,
        "model.norm.weight": torch.ones(shape.hidden, device=device),
        "lm_head.weight": embedding.roll(1, 0),
    }
    stored = {name: tensor.bfloat16() for name, tensor in tensors.items()}
    for name, tensor in _layers(shape, random, device, _WHISPER):
        stored |= _fp8(name, tensor) if fp8 and tensor.dim() == 2 else {name: tensor.bfloat16()}
    return _write(directory, shape, stored, "bfloat16", fp8=fp8)


def write_random(directory: Path, shape: Shape, *, seed: int = 0) -> Path:
    """Write a random model in float32."""
    random = torch.Generator().manual_seed(seed)
    device = torch.device("cpu")
    tensors = {
        "model.embed_tokens.weight": torch.randn(shape.vocabulary, shape.hidden, generator=random),
        "model.norm.weight": torch.rand(shape.hidden, generator=random) + 0.5,
        "lm_head.weight": torch.randn(shape.vocabulary, shape.hidden, generator=random) * shape.hidden**-0.5,
    }
    tensors |= dict(_layers(shape, random, device, 1.0))
    return _write(directory, shape, tensors, "float32", fp8=False)


def _layers(
    shape: Shape, random: torch.Generator, device: torch.device, loudness: float
) -> Iterator[tuple[str, torch.Tensor]]:
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    sizes = {
        "self_attn.q_proj": (queries, shape.hidden, 1.0),
        "self_attn.k_proj": (keys, shape.hidden, 1.0),
        "self_attn.v_proj": (keys, shape.hidden, 1.0),
        "self_attn.o_proj": (shape.hidden, queries, loudness),
        "mlp.gate_proj": (shape.intermediate, shape.hidden, 1.0),
        "mlp.up_proj": (shape.intermediate, shape.hidden, 1.0),
        "mlp.down_proj": (shape.hidden, shape.intermediate, loudness),
    }
    for layer in range(shape.layers):
        prefix = f"model.layers.{layer}"
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{prefix}.{norm}.weight", torch.rand(shape.hidden, generator=random, device=device) + 0.5
        for name, (rows, columns, scale) in sizes.items():
            weight = torch.randn(rows, columns, generator=random, device=device)
            yield f"{prefix}.{name}.weight", weight.mul_(scale * columns**-0.5)


def _fp8(name: str, weight: torch.Tensor) -> dict[str, torch.Tensor]:
    scale = (weight.abs().amax(1, keepdim=True) / _LIMIT).bfloat16()
    rounded = (weight / scale.float()).clamp_(-_LIMIT, _LIMIT).to(_FP8)
    return {name: rounded, f"{name}_scale": scale}


def _write(directory: Path, shape: Shape, tensors: dict[str, torch.Tensor], dtype: str, *, fp8: bool) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.cpu() for name, tensor in tensors.items()}, directory / "model.safetensors")
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "max_position_embeddings": shape.positions,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10_000.0,
        "torch_dtype": dtype,
        "eos_token_id": END,
    }
    if fp8:
        how = Quantisation(Scheme.FP8, WeightScale.CHANNEL, ("lm_head",))
        config["quantization_config"] = quantisation_config(how)
    _write_json(directory / "config.json", config)
    _write_json(directory / "generation_config.json", {"eos_token_id": END})
    _write_json(directory / "tokenizer_config.json", {"eos_token": _SPECIAL[END]})
    template = "{{ '<|im_start|>' + (messages[-1]['content'] | trim) + '<|im_end|>' }}"
    (directory / "chat_template.jinja").write_text(template)
    _tokenizer(shape.vocabulary).save(str(directory / "tokenizer.json"))
    return directory


def _tokenizer(vocabulary: int) -> Tokenizer:
    """Bytes, and words that no text becomes."""
    words = [*_SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    words += [f"w{index}" for index in range(len(words), vocabulary)]
    tokenizer = Tokenizer(models.BPE(vocab={word: index for index, word in enumerate(words)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in _SPECIAL])
    return tokenizer


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")
