"""What the engine computes with: rotary tables, packed layers, bfloat16."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from copydesk.inference.engine.native import Precision
from copydesk.inference.engine.native.config import read_config
from copydesk.inference.engine.native.layout import Run
from copydesk.inference.engine.native.linear import Chain, Gate, PackedGate, PackedLinear, PlainLinear, can_pack
from copydesk.inference.engine.native.precision import multiplies_bfloat16, torch_dtype
from copydesk.inference.engine.native.rope import Rope, RopeKind
from copydesk.inference.engine.native.rope import inverse_frequencies as frequencies_of
from copydesk.inference.engine.native.rope_table import rope_table
from copydesk.inference.engine.native.runner import TorchRunner
from tests.unit.engine.reference import write_reference

CPU = torch.device("cpu")


def transformers_frequencies(kind: str, **parameters: Any) -> torch.Tensor:
    config = transformers.LlamaConfig(
        hidden_size=64,
        num_attention_heads=2,
        rope_parameters={"rope_type": kind, "rope_theta": 5e5, **parameters},
    )
    frequencies, scale = ROPE_INIT_FUNCTIONS[kind](config, device=CPU)
    assert scale == 1.0
    return frequencies


def inverse_frequencies(rope: Rope, head_dim: int) -> torch.Tensor:
    return torch.from_numpy(frequencies_of(rope, head_dim))


def test_linear_scaling_slows_all_rotations_alike() -> None:
    ours = inverse_frequencies(Rope(5e5, RopeKind.LINEAR, factor=4.0), 32)
    torch.testing.assert_close(ours, transformers_frequencies("linear", factor=4.0))


def test_llama3_scaling_is_that_of_transformers() -> None:
    llama3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    ours = inverse_frequencies(Rope(5e5, RopeKind.LLAMA3, 8.0, 1.0, 4.0, 8192), 32)
    theirs = transformers_frequencies("llama3", **llama3, original_max_position_embeddings=8192)
    torch.testing.assert_close(ours, theirs)
    assert not torch.allclose(ours, inverse_frequencies(Rope(5e5), 32))


def test_a_rotation_keeps_lengths_and_depends_on_distance_alone() -> None:
    table = rope_table(Rope(), 16, 40, torch.float32, CPU)
    q, k = torch.randn(2, 16).unbind(0)

    def rotated(x: torch.Tensor, position: int) -> torch.Tensor:
        return x * table.cos[position] + x.roll(8) * table.sin[position]

    torch.testing.assert_close(rotated(q, 31).norm(), q.norm())
    torch.testing.assert_close(
        rotated(q, 31) @ rotated(k, 28), rotated(q, 5) @ rotated(k, 2), rtol=1e-4, atol=1e-4
    )


@pytest.mark.skipif(not can_pack(torch.bfloat16, CPU), reason="this processor has no bfloat16 in oneDNN")
@pytest.mark.parametrize("tokens", [1, 7, 64])
@pytest.mark.parametrize("biased", [False, True])
def test_packed_layers_compute_what_plain_ones_do(tokens: int, biased: bool) -> None:
    torch.manual_seed(tokens)
    x, gate, up = (torch.randn(rows, 48, dtype=torch.bfloat16) for rows in (tokens, 80, 80))
    gate_bias, up_bias = (torch.randn(80, dtype=torch.bfloat16) if biased else None for _ in range(2))
    torch.testing.assert_close(
        PackedLinear(gate, gate_bias)(x), PlainLinear(gate, gate_bias)(x), rtol=0.02, atol=0.05
    )
    both = torch.cat([gate_bias, up_bias]) if gate_bias is not None and up_bias is not None else None
    plain = Chain(PlainLinear(torch.cat([gate, up]), both), Gate())(x)
    torch.testing.assert_close(PackedGate(gate, up, gate_bias, up_bias)(x), plain, rtol=0.03, atol=0.5)


def test_packing_leaves_the_tied_embedding_readable(tmp_path: Path) -> None:
    model = write_reference("tied", tmp_path)
    scores = last_scores(tmp_path, torch.bfloat16, [3, 1, 4, 1, 5])
    with torch.no_grad():
        expected = model(torch.tensor([[3, 1, 4, 1, 5]])).logits[0, -1]
    assert (scores - expected).abs().max() < 0.05 * expected.abs().max()


@pytest.mark.parametrize("shape", ["plain", "biases", "rope-llama3"])
def test_bfloat16_scores_stay_close_to_float32(shape: str, tmp_path: Path) -> None:
    write_reference(shape, tmp_path)
    prompt = [7, 50, 3, 3, 90, 12, 45, 1, 0, 66]
    exact = last_scores(tmp_path, torch.float32, prompt)
    rough = last_scores(tmp_path, torch.bfloat16, prompt)
    assert 0 < (rough - exact).abs().max() < 0.05 * exact.abs().max()


def last_scores(directory: Path, dtype: torch.dtype, prompt: list[int]) -> torch.Tensor:
    torch.set_num_threads(1)
    runner = TorchRunner(directory, read_config(directory), slots=2, context=32, dtype=dtype, device=CPU)
    return runner.logits([Run(request_id=1, slot=1, start=0, tokens=prompt, samples=1)])[1][0].float()


@pytest.mark.parametrize(
    ("flags", "fast"),
    [
        ("fpu avx512f avx512_bf16", True),
        ("fpu amx_bf16 amx_tile", True),
        ("fpu avx2 avx512f", False),
        ("not_avx512_bf16_but_longer", False),
    ],
)
def test_auto_is_bfloat16_where_the_processor_has_instructions_for_it(
    flags: str, fast: bool, tmp_path: Path
) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor\t: 0\nflags\t\t: {flags}\n")
    assert multiplies_bfloat16(cpuinfo.read_text()) is fast
    assert torch_dtype(Precision.AUTO, CPU, cpuinfo) == (torch.bfloat16 if fast else torch.float32)


def test_an_explicit_precision_is_obeyed_and_an_unknown_processor_gets_float32(tmp_path: Path) -> None:
    assert torch_dtype(Precision.FLOAT32, CPU) == torch.float32
    assert torch_dtype(Precision.BFLOAT16, CPU) == torch.bfloat16
    assert torch_dtype(Precision.AUTO, CPU, tmp_path / "absent") == torch.float32
