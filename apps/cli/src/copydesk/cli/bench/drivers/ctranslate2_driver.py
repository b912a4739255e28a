"""Run by the Python of CTranslate2's environment: JSON lines in, JSON lines out.

Usage: ctranslate2_driver.py MODEL_DIR COMPUTE_TYPE THREADS BATCH. CTranslate2 batches what it is given at once and
takes nothing in midway, so whatever has come in while a batch was computed makes the next one.
"""

from __future__ import annotations

import json
import queue
import sys
import threading
from pathlib import Path
from typing import Any

import ctranslate2


def tell(message: dict[str, Any]) -> None:
    """Write one line."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def read_requests(requests: queue.SimpleQueue[dict[str, Any] | None]) -> None:
    """Put every request into the queue, and None at the end."""
    for line in sys.stdin:
        requests.put(json.loads(line))
    requests.put(None)


def take(requests: queue.SimpleQueue[dict[str, Any] | None], most: int) -> list[dict[str, Any]]:
    """Wait for a request and take what else is there; empty at the end."""
    batch: list[dict[str, Any]] = []
    while len(batch) < most and not (batch and requests.empty()):
        request = requests.get()
        if request is None:
            break
        batch.append(request)
    return batch


def main() -> None:
    """Answer until the input ends."""
    model_dir, compute_type, threads, most = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    vocabulary: list[str] = json.loads((Path(model_dir) / "vocabulary.json").read_text())
    generator = ctranslate2.Generator(
        model_dir, device="cpu", compute_type=compute_type, inter_threads=1, intra_threads=threads
    )
    requests: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
    threading.Thread(target=read_requests, args=(requests,), daemon=True).start()
    tell({"ready": True, "version": ctranslate2.__version__})
    while batch := take(requests, most):
        results = generator.generate_batch(
            [[vocabulary[token] for token in request["tokens"]] for request in batch],
            max_length=max(request["max_tokens"] for request in batch),
            end_token=batch[0]["stop_ids"],
            sampling_topk=1,
            include_prompt_in_result=False,
        )
        for request, result in zip(batch, results, strict=True):
            tell({"id": request["id"], "tokens": result.sequences_ids[0][: request["max_tokens"]]})


if __name__ == "__main__":
    main()
