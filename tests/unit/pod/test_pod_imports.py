import subprocess
import sys

import pytest

HEAVY = {"torch", "numpy", "transformers", "gguf", "safetensors"}


@pytest.mark.parametrize("module", ["supervisor", "worker_process", "engine_link", "corrections", "completions"])
def test_supervisor_and_workers_do_not_pay_for_the_engines_libraries(module: str) -> None:
    program = f"import sys, copydesk.inference.__main__, copydesk.inference.pod.{module}; print(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert HEAVY.isdisjoint(name.partition(".")[0] for name in result.stdout.split())
