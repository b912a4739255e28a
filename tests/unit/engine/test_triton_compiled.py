"""Triton's kernels compiled for GPUs, down to the machine code: that takes Triton's compiler, and no GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HOPPER, ADA = 90, 89

# In a process of its own: in this one Triton interprets (tests/conftest.py).
PROGRAM = """
import json, sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from copydesk.inference.engine.native.fp8 import triton_kernels as kernels

def compiled(kernel, pointers, columns, capability):
    how = dict(kernels._how(columns))
    types = {name: "*bf16" for name in pointers} | {"values": "*fp8e4nv", "scales": "*fp32"}
    types |= {"count": "i32", "columns": "i32", "stride": "i32", "epsilon": "fp32", "block": "constexpr"}
    signature = {name: types[name] for name in kernel.arg_names}
    source = ASTSource(kernel, signature, {"block": how.pop("block")})
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=how).asm

found = {}
for capability, columns in json.loads(sys.argv[1]):
    for name, pointers in (("_quantise", "x"), ("_norm_quantise", ("x", "weight")), ("_gate_quantise", "x")):
        asm = compiled(getattr(kernels, name), pointers, columns, capability)
        found[f"{name} {columns} {capability}"] = [len(asm["cubin"]), asm["ptx"]]
print(json.dumps(found))
"""


def test_the_compiler_takes_every_kernel_and_keeps_its_rounding(tmp_path: Path) -> None:
    pytest.importorskip("triton.backends.nvidia")
    cases = [(HOPPER, 1536), (ADA, 576)]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(cases)],
        env=os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert len(found) == 3 * len(cases)
    for name, (size, ptx) in found.items():
        assert size > 0, name
        assert "div.rn.f32" in ptx, f"{name} divides exactly"
        assert "0f49C00000" in ptx, f"{name} rounds by adding 1.5 * 2^20 steps, which nothing has simplified"
        assert "0fC9C00000" in ptx, f"{name} takes them off again"
        if name.endswith(str(HOPPER)):
            assert "cvt.rn.satfinite.e4m3x2.f32" in ptx, f"{name} leaves the conversion to the hardware"
