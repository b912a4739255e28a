#!/usr/bin/env bash
# Checks the GPU path of the inference engine on this machine, and measures it: in eight minutes on one GPU.
#
#   scripts/gpu_check.sh [--model DIR] [--json]      with a GPU
#   scripts/gpu_check.sh --device cpu --quick        a dry run
#
# It needs a Python with torch (built for CUDA), numpy, msgspec, ml-dtypes, safetensors, tokenizers, structlog,
# prometheus-client and platformdirs, g++ and Python's headers; for whole pods besides jinja2, regex, sentencex,
# pydantic, pydantic-settings, nats-core, setproctitle and uvloop. What is missing it names. PYTHON names another
# interpreter.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
sources=$(printf '%s:' "$root"/libs/*/src "$root"/services/*/src "$root"/models/*/src)
export PYTHONPATH="$sources${PYTHONPATH:-}" PYTHONUNBUFFERED=1
sentences=$root/apps/cli/src/copydesk/cli/bench/data/gec-workload.txt
exec "${PYTHON:-python3}" -m copydesk.inference.gpu_check --sentences "$sentences" "$@"
