"""Checkpoints with some modules kept and other scales, as `copydesk model quantize` makes them, read by vLLM.

A tiny random model, whose rows differ in size, tells whether each weight met its own scale: its scores are
compared with those of the same weights multiplied out, which transformers computes. FP8 is tried here alone, since
vLLM multiplies it number by number on most CPUs; with one scale a tensor it does not load there (docs/vllm.md).
"""

from __future__ import annotations

import json
import subprocess
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from copydesk.cli.bench.vllm_contender import environ
from copydesk.inference.quantisation.conversion import quantise_directory
from copydesk.inference.quantisation.plan import PrecisionPlan
from copydesk.inference.quantisation.scheme import Quantisation, Scheme, WeightScale
from tests.fixtures.quantised_model import multiplied_out
from tests.fixtures.tiny_model import write_tiny_model

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(2000)]

PROMPT = [1, 40, 41, 50, 60, 70, 80, 90, 100, 110]
PLANS = [
    PrecisionPlan(Scheme.FP8, keep=("*.0.self_attn.q_proj", "*.1.mlp.down_proj")),
    PrecisionPlan(Scheme.INT8, keep=("*.1.self_attn.k_proj", "*.0.mlp.down_proj")),
    PrecisionPlan(Scheme.INT8, per_tensor=True, keep=("attention",)),
]
SCRIPT = """
import json, sys
from vllm import LLM, SamplingParams

def main(prompt, directories):
    results = []
    for directory in directories:
        model = LLM(model=directory, dtype="bfloat16", max_model_len=64, max_num_seqs=2, enforce_eager=True,
                    enable_prefix_caching=False, skip_tokenizer_init=True)
        sampling = SamplingParams(max_tokens=1, temperature=0, logprobs=5, detokenize=False)
        answer = model.generate([{"prompt_token_ids": prompt}], sampling)[0].outputs[0]
        results.append({token: entry.logprob for token, entry in answer.logprobs[0].items()})
        del model
    print("RESULT " + json.dumps(results), flush=True)

if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2:])
"""


def uneven(directory: Path) -> Path:
    """Halve some rows of every matrix and double others: with another row's scale, a weight is far off."""
    path = directory / "model.safetensors"
    tensors = load_file(path)
    drawn = torch.Generator().manual_seed(3)
    for name, tensor in tensors.items():
        if name.endswith("_proj.weight"):
            tensors[name] = tensor * torch.exp2(torch.randint(-1, 2, (len(tensor), 1), generator=drawn)).to(tensor)
    save_file(tensors, path, metadata={"format": "pt"})
    return directory


def scores_of(directory: Path) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model: Any = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    with torch.no_grad():
        scores: torch.Tensor = model.eval()(torch.tensor([PROMPT])).logits[0, -1].log_softmax(-1)
    return scores


def test_vllm_reads_what_is_kept_and_what_shares_a_scale_as_it_was_meant(vllm_python: str, tmp_path: Path) -> None:
    original = tmp_path / "original"
    source = uneven(
        write_tiny_model(original, hidden=128, heads=2, kv_heads=1, intermediate=256, dtype="bfloat16")
    )
    meant: list[torch.Tensor] = []
    for place, plan in enumerate(PLANS):
        report = quantise_directory(source, tmp_path / f"plan-{place}", plan, measure=False)
        ignore = ("lm_head", *(module.name for module in report.modules if module.kept is not None))
        scale = WeightScale.TENSOR if plan.per_tensor else WeightScale.CHANNEL
        quantisation = Quantisation(plan.scheme, scale, ignore)
        meant.append(scores_of(multiplied_out(source, tmp_path / f"meant-{place}", quantisation)))
    (tmp_path / "generate.py").write_text(SCRIPT)
    directories = [str(tmp_path / f"plan-{place}") for place in range(len(PLANS))]
    argv = [vllm_python, str(tmp_path / "generate.py"), json.dumps(PROMPT), *directories]
    # All in one process, which saves a minute; what would be compiled is less work than its compiling.
    environment = {**environ(Path(vllm_python)), "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "TORCHDYNAMO_DISABLE": "1"}
    run = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-4000:]
    line = next(line for line in run.stdout.splitlines() if line.startswith("RESULT "))
    for expected, found in zip(meant, json.loads(line.removeprefix("RESULT ")), strict=True):
        assert len(found) >= 5
        for token, score in found.items():
            # What rounding activations costs, and bfloat16.
            assert abs(score - expected[int(token)].item()) < 0.25
