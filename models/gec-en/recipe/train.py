"""Fine-tune SmolLM2-135M-Instruct for grammatical error correction with LoRA, on CPU.

The loss counts the completion only. The base is frozen in bfloat16, the adapter is float32. Attention is eager: in
backward, CPU's fused attention is slower at these lengths. Logits are made where there is something to learn only.

Several single-threaded processes share the adapter and Adam's state and update them in turn (asynchronous SGD): on
a busy machine they lose no time in waiting for threads. The learning rate follows the share of the time used.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.multiprocessing as mp
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer

from recipe.batches import NO_LABEL, Batch, batches
from recipe.lora import add_adapter, load_adapter, save_adapter
from recipe.pairs import read_pairs

_BETA1, _BETA2, _EPSILON = 0.9, 0.98, 1e-8
_MAX_NORM = 1.0


@dataclass(frozen=True)
class Shared:
    """What all workers read and write: the model, its adapter, Adam's moments and counters of work done."""

    model: Any
    named: dict[str, nn.Parameter]
    first: list[Tensor]
    second: list[Tensor]
    steps: Tensor
    pairs: Tensor
    tokens: Tensor

    @property
    def parameters(self) -> list[nn.Parameter]:
        """What is trained."""
        return list(self.named.values())


def share(model: Any, named: dict[str, nn.Parameter]) -> Shared:
    """Move the model and fresh optimiser state into shared memory."""
    model.share_memory()
    moments = [[_in_shared_memory(torch.zeros_like(value)) for value in named.values()] for _ in range(2)]
    counters = [_in_shared_memory(torch.zeros(1, dtype=torch.float64)) for _ in range(3)]
    return Shared(model, named, moments[0], moments[1], *counters)


def _in_shared_memory(tensor: Any) -> Tensor:
    shared: Tensor = tensor.share_memory_()
    return shared


def weighted_loss(model: Any, batch: Batch) -> Tensor:
    """The weighted mean cross entropy where there is a label."""
    hidden = model.model(input_ids=batch.ids, use_cache=False).last_hidden_state
    learnt = batch.labels != NO_LABEL
    logits = F.linear(hidden[learnt], model.lm_head.weight).float()
    losses = F.cross_entropy(logits, batch.labels[learnt], reduction="none")
    weights = batch.weights[learnt]
    return (losses * weights).sum() / weights.sum()


def learning_rate(options: argparse.Namespace, step: int, used: float) -> float:
    """Warm-up by steps, then a linear fall over the last `cooldown` share of the time, to a fiftieth at least."""
    warm = min(1.0, step / options.warmup)
    return float(options.lr * warm * min(1.0, max(0.02, (1 - used) / options.cooldown)))


def update(shared: Shared, gradients: tuple[Tensor, ...], rate: float, step: int) -> float:
    """One step of Adam with clipped gradients; returns their norm."""
    norm = torch.sqrt(sum((g.float().pow(2).sum() for g in gradients), start=torch.zeros(()))).item()
    clip = min(1.0, _MAX_NORM / (norm + 1e-6))
    for value, raw, first, second in zip(shared.parameters, gradients, shared.first, shared.second, strict=True):
        gradient = raw.float() * clip
        first.mul_(_BETA1).add_(gradient, alpha=1 - _BETA1)
        second.mul_(_BETA2).addcmul_(gradient, gradient, value=1 - _BETA2)
        spread = (second / (1 - _BETA2**step)).sqrt_().add_(_EPSILON)
        value.addcdiv_(first / (1 - _BETA1**step), spread, value=-rate)
    return norm


def work(rank: int, options: argparse.Namespace, shared: Shared, lock: Any, started: float) -> None:
    """Train on every `workers`-th pair until the time is up; the first worker saves now and then."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    tokenizer = AutoTokenizer.from_pretrained(options.base)
    stream = batches(
        read_pairs(options.pairs)[rank :: options.workers],
        tokenizer,
        random.Random(options.seed + rank),
        batch_tokens=options.batch_tokens,
        max_length=options.max_len,
        edit_weight=options.edit_weight,
    )
    saved = time.monotonic()
    with (options.out / f"train.{rank}.log").open("a", encoding="utf-8") as log:
        for batch in stream:
            elapsed = time.monotonic() - started
            if elapsed >= options.minutes * 60:
                break
            _train_on(batch, options, shared, lock, elapsed, log)
            if rank == 0 and time.monotonic() - saved > options.save_every:
                with lock:
                    save_adapter(shared.named, options.out, options.r, options.alpha)
                saved = time.monotonic()


def _train_on(
    batch: Batch, options: argparse.Namespace, shared: Shared, lock: Any, elapsed: float, log: TextIO
) -> None:
    loss = weighted_loss(shared.model, batch)
    gradients = torch.autograd.grad(loss, shared.parameters)
    with lock, torch.no_grad():
        shared.steps.add_(1)
        step = int(shared.steps)
        rate = learning_rate(options, step, elapsed / (options.minutes * 60))
        norm = update(shared, gradients, rate, step)
        shared.pairs.add_(len(batch.ids))
        shared.tokens.add_(batch.ids.numel())
    pairs, tokens = int(shared.pairs), int(shared.tokens)
    line = f"{elapsed:.0f}s step {step} loss {loss.item():.4f} lr {rate:.2e} norm {norm:.2f}"
    print(f"{line} pairs {pairs} tokens {tokens}", file=log, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", type=Path, required=True, help="the base model, as base_model.py writes it")
    parser.add_argument("--pairs", type=Path, default=Path("pairs.jsonl"))
    parser.add_argument("--out", type=Path, default=Path("adapter"))
    parser.add_argument("--resume", type=Path, help="an adapter to go on from")
    parser.add_argument("--minutes", type=float, default=75)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--r", type=int, default=16)
    parser.add_argument("--alpha", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--warmup", type=int, default=30, help="steps over which the rate rises")
    parser.add_argument("--cooldown", type=float, default=0.7, help="share of the time over which the rate falls")
    parser.add_argument("--batch-tokens", type=int, default=768)
    parser.add_argument("--max-len", type=int, default=120, help="tokens of prompt and completion together")
    parser.add_argument("--edit-weight", type=float, default=3.0)
    parser.add_argument("--save-every", type=float, default=180, help="seconds")
    parser.add_argument("--seed", type=int, default=3)
    return parser.parse_args()


def main() -> None:
    """Train, and write the adapter."""
    options = _options()
    torch.manual_seed(options.seed)
    options.out.mkdir(parents=True, exist_ok=True)
    model = AutoModelForCausalLM.from_pretrained(options.base, dtype=torch.bfloat16, attn_implementation="eager")
    named = add_adapter(model, options.r, options.alpha)
    if options.resume:
        load_adapter(named, options.resume)
    shared = share(model, named)
    context = mp.get_context("fork")
    lock, started = context.Lock(), time.monotonic()
    workers = [
        context.Process(target=work, args=(rank, options, shared, lock, started))
        for rank in range(options.workers)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    save_adapter(named, options.out, options.r, options.alpha)
    done = {"steps": int(shared.steps), "pairs": int(shared.pairs), "tokens": int(shared.tokens)}
    print(json.dumps(done), f"{time.monotonic() - started:.0f}s")


if __name__ == "__main__":
    main()
