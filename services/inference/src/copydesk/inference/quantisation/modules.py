"""The linear modules of a Llama-family decoder, and every tensor that its checkpoint has."""

from __future__ import annotations

from dataclasses import dataclass

from copydesk.inference.engine.native.config import ModelConfig

EMBEDDING = "model.embed_tokens.weight"
FINAL_NORM = "model.norm.weight"
HEAD = "lm_head"
NORMS = ("input_layernorm", "post_attention_layernorm")

FUSED = (
    ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    ("mlp.gate_proj", "mlp.up_proj"),
)
"""Modules that engines compute in one product, and so in one precision."""


@dataclass(frozen=True, slots=True)
class LinearModule:
    """One linear map: `kind` is its name within the layer, the weight is [rows, columns]."""

    layer: int
    kind: str
    rows: int
    columns: int
    biased: bool

    @property
    def prefix(self) -> str:
        """The name of its layer."""
        return f"model.layers.{self.layer}"

    @property
    def name(self) -> str:
        """Its full name."""
        return f"{self.prefix}.{self.kind}"

    @property
    def weight(self) -> str:
        """The name of its weight."""
        return f"{self.name}.weight"

    @property
    def scale(self) -> str:
        """The name of the scales of its weight, once it is quantised."""
        return f"{self.name}.weight_scale"

    @property
    def fused(self) -> tuple[str, ...]:
        """The full names of the modules that share a product with it, its own among them."""
        group = next((kinds for kinds in FUSED if self.kind in kinds), (self.kind,))
        return tuple(f"{self.prefix}.{kind}" for kind in group)


def linear_modules(config: ModelConfig) -> tuple[LinearModule, ...]:
    """Every linear module of the layers, in the order of computation; the output head is none of them."""
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    kinds = (
        ("self_attn.q_proj", queries, config.hidden, config.qkv_bias),
        ("self_attn.k_proj", keys, config.hidden, config.qkv_bias),
        ("self_attn.v_proj", keys, config.hidden, config.qkv_bias),
        ("self_attn.o_proj", config.hidden, queries, config.output_bias),
        ("mlp.gate_proj", config.intermediate, config.hidden, config.mlp_bias),
        ("mlp.up_proj", config.intermediate, config.hidden, config.mlp_bias),
        ("mlp.down_proj", config.hidden, config.intermediate, config.mlp_bias),
    )
    return tuple(LinearModule(layer, *kind) for layer in range(config.layers) for kind in kinds)


def expected_tensors(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor that the configuration implies, by name, in the order of computation."""
    shapes: dict[str, tuple[int, ...]] = {EMBEDDING: (config.vocabulary, config.hidden)}
    for module in linear_modules(config):
        for norm in NORMS:
            shapes[f"{module.prefix}.{norm}.weight"] = (config.hidden,)
        shapes[module.weight] = (module.rows, module.columns)
        if module.biased:
            shapes[f"{module.name}.bias"] = (module.rows,)
    shapes[FINAL_NORM] = (config.hidden,)
    if not config.tied:
        shapes[f"{HEAD}.weight"] = (config.vocabulary, config.hidden)
    return shapes
