"""Fine-tune SmolLM2-135M-Instruct for grammatical error correction with LoRA, on processors.

The loss counts the completion only. Several single-threaded processes share the adapter and Adam's state and
update them in turn (asynchronous SGD): on a busy machine they lose no time in waiting for threads. The plan is a
JSON file (`schedule.Schedule`) that may be edited while it runs. What is needed to go on is saved now and then.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

import torch
import torch.multiprocessing as mp
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoTokenizer

from recipe.batches import Batch, Shape, batches
from recipe.decoder import Decoder
from recipe.lora import load_adapter, save_adapter
from recipe.pairs import read_pairs
from recipe.schedule import Schedule, ScheduleFile

_BETA1, _BETA2, _EPSILON = 0.9, 0.98, 1e-8
_MAX_NORM = 1.0
_STATE = "state.safetensors"


@dataclass(frozen=True)
class Shared:
    """What all workers read and write: adapter, running average, Adam's moments, and steps and pairs done."""

    named: dict[str, Tensor]
    average: dict[str, Tensor]
    first: dict[str, Tensor]
    second: dict[str, Tensor]
    steps: Tensor
    pairs: Tensor

    @classmethod
    def of(cls, named: dict[str, Tensor]) -> Shared:
        """Fresh state for an adapter, which moves to shared memory."""
        for value in named.values():
            _shared(value.data)
        average, first, second = (
            {key: _shared(make(value.data)) for key, value in named.items()}
            for make in (torch.clone, torch.zeros_like, torch.zeros_like)
        )
        steps, pairs = (_shared(torch.zeros(1, dtype=torch.float64)) for _ in range(2))
        return cls(named, average, first, second, steps, pairs)

    def tensors(self) -> dict[str, Tensor]:
        """Everything by name, for a file."""
        parts = {"adapter": self.named, "average": self.average, "first": self.first, "second": self.second}
        every = {f"{part}/{key}": value.detach() for part, held in parts.items() for key, value in held.items()}
        return {**every, "steps": self.steps, "pairs": self.pairs}


def _shared(tensor: Any) -> Tensor:
    moved: Tensor = tensor.share_memory_()
    return moved


def update(shared: Shared, gradients: tuple[Tensor, ...], rate: float, decay: float) -> float:
    """One step of Adam with clipped gradients, and of the running average; returns the gradients' norm."""
    norm = torch.sqrt(sum((g.pow(2).sum() for g in gradients), start=torch.zeros(()))).item()
    if not norm < float("inf"):
        return norm
    shared.steps.add_(1)
    step = int(shared.steps)
    clip = min(1.0, _MAX_NORM / (norm + 1e-6))
    for (key, value), raw in zip(shared.named.items(), gradients, strict=True):
        gradient, first, second = raw * clip, shared.first[key], shared.second[key]
        first.mul_(_BETA1).add_(gradient, alpha=1 - _BETA1)
        second.mul_(_BETA2).addcmul_(gradient, gradient, value=1 - _BETA2)
        spread = (second / (1 - _BETA2**step)).sqrt_().add_(_EPSILON)
        value.data.addcdiv_(first / (1 - _BETA1**step), spread, value=-rate)
        shared.average[key].lerp_(value.data, 1 - min(decay, step / (step + 10)))
    return norm


def save(shared: Shared, options: argparse.Namespace) -> None:
    """Write the adapter, its average, and the state to go on from."""
    save_adapter(shared.named, options.out / "last", options.r, options.alpha)
    save_adapter(shared.average, options.out / "average", options.r, options.alpha)
    partial = options.out / f".{_STATE}"
    save_file(shared.tensors(), partial)
    partial.replace(options.out / _STATE)


def restore(shared: Shared, path: Path) -> None:
    """Go on from a state that was saved."""
    saved = load_file(path)
    for key, value in shared.tensors().items():
        value.copy_(saved[key])


def work(rank: int, options: argparse.Namespace, decoder: Decoder, shared: Shared, lock: Any) -> None:
    """Train on every `workers`-th pair until the plan's end; the first worker saves now and then."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    plan = ScheduleFile(options.schedule)
    tokenizer = AutoTokenizer.from_pretrained(options.base)
    stream = batches(
        lambda: read_pairs(Path(plan.read().pairs))[rank :: options.workers],
        tokenizer,
        random.Random(options.seed + rank + int(shared.steps)),
        Shape(),
        plan.read().edit_weight,
    )
    begun, saved = int(shared.steps), time.monotonic()
    with (options.out / f"train.{rank}.log").open("a", encoding="utf-8") as log:
        for batch in stream:
            if time.time() >= plan.read().end:
                break
            _train_on(batch, decoder, shared, lock, plan.read(), begun, log)
            if rank == 0 and time.monotonic() - saved > options.save_every:
                with lock:
                    save(shared, options)
                saved = time.monotonic()


def _train_on(
    batch: Batch, decoder: Decoder, shared: Shared, lock: Any, plan: Schedule, begun: int, log: TextIO
) -> None:
    loss = decoder.loss(batch)
    gradients = torch.autograd.grad(loss, list(shared.named.values()))
    with lock, torch.no_grad():
        rate = plan.rate_at(time.time(), int(shared.steps) - begun)
        norm = update(shared, gradients, rate, plan.decay)
        shared.pairs.add_(int((batch.labels == 2).sum()))
        step, pairs = int(shared.steps), int(shared.pairs)
    when = time.strftime("%H:%M:%S")
    print(
        f"{when} step {step} loss {loss.item():.4f} rate {rate:.2e} norm {norm:.2f} pairs {pairs}",
        file=log,
        flush=True,
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", type=Path, required=True, help="the base model, as base_model.py writes it")
    parser.add_argument("--schedule", type=Path, required=True, help="the plan, a JSON file")
    parser.add_argument(
        "--out", type=Path, default=Path("trained"), help="where it goes on, if it was there before"
    )
    parser.add_argument("--resume", type=Path, help="an adapter to begin with")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--r", type=int, default=16)
    parser.add_argument("--alpha", type=int, default=32)
    parser.add_argument("--save-every", type=float, default=240, help="seconds")
    parser.add_argument("--seed", type=int, default=3)
    return parser.parse_args()


def main() -> None:
    """Train, and write the adapter."""
    options = _options()
    torch.manual_seed(options.seed)
    options.out.mkdir(parents=True, exist_ok=True)
    decoder = Decoder(options.base, options.r, options.alpha)
    if options.resume:
        load_adapter(decoder.named, options.resume)
    shared = Shared.of(decoder.named)
    if (options.out / _STATE).exists():
        restore(shared, options.out / _STATE)
    context = mp.get_context("fork")
    lock = context.Lock()
    workers = [
        context.Process(target=work, args=(rank, options, decoder, shared, lock))
        for rank in range(options.workers)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if all(worker.exitcode == 0 for worker in workers):
        save(shared, options)
    print(f"{int(shared.steps)} steps, {int(shared.pairs)} pairs")


if __name__ == "__main__":
    main()
