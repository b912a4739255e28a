"""Run by the Python of OpenVINO GenAI's environment: JSON lines in, JSON lines out.

Usage: openvino_driver.py MODEL THREADS LOOKUP. Continuous batching: what comes in joins before the next step.
LOOKUP is the number of tokens guessed by prompt look-up, 0 for none.
"""

from __future__ import annotations

import json
import queue
import sys
import threading
from typing import Any

import numpy as np
import openvino
import openvino_genai

_SEQUENCES = 128
_CACHE_GIB = 1
_LONGEST_MATCH = 3

Requests = queue.SimpleQueue[dict[str, Any] | None]


def tell(message: dict[str, Any]) -> None:
    """Write one line."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def read_requests(requests: Requests) -> None:
    """Put every request into the queue, and None at the end."""
    for line in sys.stdin:
        requests.put(json.loads(line))
    requests.put(None)


def pipeline(model: str, threads: int, lookup: int) -> openvino_genai.ContinuousBatchingPipeline:
    """Load the model, once converted from GGUF into a directory beside it."""
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.cache_size = _CACHE_GIB
    scheduler.max_num_seqs = _SEQUENCES
    scheduler.enable_prefix_caching = False
    scheduler.dynamic_split_fuse = True
    properties: dict[str, Any] = {"INFERENCE_NUM_THREADS": threads}
    if lookup:
        properties["prompt_lookup"] = True
    return openvino_genai.ContinuousBatchingPipeline(model, scheduler, "CPU", properties)


def config(request: dict[str, Any], lookup: int) -> openvino_genai.GenerationConfig:
    """Greedy, within the request's limits."""
    made = openvino_genai.GenerationConfig(max_new_tokens=request["max_tokens"], do_sample=False)
    if request["stop_ids"]:
        made.stop_token_ids = set(request["stop_ids"])
    else:
        made.ignore_eos = True
    if lookup:
        made.num_assistant_tokens = lookup
        made.max_ngram_size = _LONGEST_MATCH
    return made


def main() -> None:
    """Answer until the input ends."""
    model, threads, lookup = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    pipe = pipeline(model, threads, lookup)
    requests: Requests = queue.SimpleQueue()
    threading.Thread(target=read_requests, args=(requests,), daemon=True).start()
    tell({"ready": True, "version": openvino_genai.__version__})
    handles: dict[int, Any] = {}
    tokens: dict[int, list[int]] = {}
    while True:
        while not (handles and requests.empty()):
            request = requests.get()
            if request is None:
                return
            ids = openvino.Tensor(np.array([request["tokens"]], dtype=np.int64))
            handles[request["id"]] = pipe.add_request(request["id"], ids, config(request, lookup))
            tokens[request["id"]] = []
        pipe.step()
        for number, handle in list(handles.items()):
            collect(number, handle, handles, tokens)


def collect(number: int, handle: Any, handles: dict[int, Any], tokens: dict[int, list[int]]) -> None:
    """Take what a request has got since, and answer it when it is finished."""
    while handle.can_read():
        for output in handle.read().values():
            tokens[number] += output.generated_ids
    if handle.get_status() == openvino_genai.GenerationStatus.RUNNING:
        return
    del handles[number]
    tell({"id": number, "tokens": tokens.pop(number)})


if __name__ == "__main__":
    main()
