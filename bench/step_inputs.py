"""What torch's step inputs cost, made of lists or by the compiled library: `python -m bench.step_inputs [--json]`.

Both ways alternate, on one thread: from a step as the engine hands it over to the tensors of the decoder, and the
whole step of a tiny model, whose decoder is the same either way. All steps are in bfloat16, with 512 positions.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from copydesk.inference.engine.compiled import load_library
from copydesk.inference.engine.native.cache import SlotCache
from copydesk.inference.engine.native.config import read_config
from copydesk.inference.engine.native.devices import RunnerDevice, runs_of
from copydesk.inference.engine.native.flat_layout import LayoutRoom
from copydesk.inference.engine.native.layout import Run, lay_out
from copydesk.inference.engine.native.rope_table import rope_table
from copydesk.inference.engine.native.runner import TorchRunner
from copydesk.inference.engine.native.step import Step, build_step, view_step
from copydesk.inference.engine.native.torch_device import TorchDevice
from tests.fixtures.tiny_model import write_tiny_model
from tests.unit.engine.steps import described

CONTEXT, SLOTS = 512, 32
CPU = torch.device("cpu")
Figures = dict[str, dict[str, list[float]]]


def steps() -> dict[str, list[Run]]:
    """By what it stands for: all decode; some draft and prompts come in; one slot in two is idle."""
    rng = random.Random(0)

    def run(slot: int, length: int, samples: int) -> Run:
        tokens = [rng.randrange(100) for _ in range(length)]
        return Run(slot, slot, rng.randrange(CONTEXT - length), tokens, samples)

    mixed = [run(slot, 1 + slot % 6, 1 + slot % 6) for slot in range(28)]
    mixed += [run(slot, length, 0) for slot, length in zip(range(28, 32), (50, 61, 70, 75), strict=True)]
    return {
        "32 decode": [run(slot, 1, 1) for slot in range(32)],
        "28 draft, 256 prompt tokens": mixed,
        "16 scattered decode": [run(2 * slot, 1, 1) for slot in range(16)],
    }


def compared(directory: Path, runs: Sequence[Run]) -> dict[str, Callable[[], object]]:
    """What is timed for a step."""
    config = read_config(directory)
    runner = TorchRunner(directory, config, slots=SLOTS, context=CONTEXT, dtype=torch.bfloat16, device=CPU)
    arrays = described(runs, config.vocabulary)
    rope = rope_table(config.rope, config.head_dim, CONTEXT, torch.bfloat16, CPU)
    cache = SlotCache(config, SLOTS, CONTEXT, torch.bfloat16, CPU)
    room = LayoutRoom(load_library(), CONTEXT)
    python, compiled = RunnerDevice(runner, config.vocabulary), TorchDevice(load_library(), runner)

    def lists() -> Step:
        return build_step(lay_out(runs_of(arrays.step), CONTEXT), cache, rope, config.group)

    def views() -> Step:
        layout = room.lay_out(arrays.step)
        return view_step(layout, torch.from_numpy(layout.numbers), rope, config.group)

    return {
        "inputs, lists": lists,
        "inputs, compiled": views,
        "whole step, lists": lambda: python.compute(arrays.step),
        "whole step, compiled": lambda: compiled.compute(arrays.step),
    }


def measure(directory: Path, rounds: int) -> Figures:
    """Microseconds by step and by what was timed, one a round."""
    found: Figures = {}
    with torch.inference_mode():
        for name, runs in steps().items():
            functions = compared(directory, runs)
            figures = found[name] = {what: [] for what in functions}
            for _ in range(rounds):
                for what, function in functions.items():
                    began = time.perf_counter()
                    function()
                    figures[what].append((time.perf_counter() - began) * 1e6)
    return found


def summary(found: Figures) -> dict[str, dict[str, dict[str, float]]]:
    """The least and the median of each, in microseconds."""
    return {
        step: {
            what: {"least": round(min(times), 1), "median": round(statistics.median(times), 1)}
            for what, times in figures.items()
        }
        for step, figures in found.items()
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--json", action="store_true", help="print all of it as JSON")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as directory:
        found = summary(
            measure(write_tiny_model(Path(directory), heads=9, kv_heads=3, hidden=576), arguments.rounds)
        )
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    for step, figures in found.items():
        for what, times in figures.items():
            print(f"{step:28} {what:22} least {times['least']:8.1f} us, median {times['median']:8.1f} us")


if __name__ == "__main__":
    main()
