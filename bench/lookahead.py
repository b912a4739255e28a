"""What looking ahead gives: steps a second of the compiled engine over a null device: `python -m bench.lookahead`.

Each request has 50 tokens in and 50 out, nothing is drafted, and twice as many are in flight as there are slots. A
step takes a set time beside the processor, as on an accelerator, and before that costs the processor a set time,
as a launch does. The engine waits until each step has been dealt with, or runs on and plans the next step when
the results of the last one are there, or looks ahead. Modes alternate round by round.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import select
import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from copydesk.common.rpc.frames import Priority
from copydesk.inference.engine import GeneratedTokens, GenerateTokens
from copydesk.inference.engine.compiled import load_library
from copydesk.inference.engine.native import CompiledEngine
from copydesk.inference.engine.native.devices import NullDevice, OverlappingNullDevice

TOKENS, CONTEXT, VOCABULARY = 50, 128, 49_152
MODES = {
    "waits": (OverlappingNullDevice, False),
    "runs on": (NullDevice, True),
    "looks ahead": (OverlappingNullDevice, True),
}


@dataclass(frozen=True)
class Setting:
    """What is measured."""

    requests: int
    step_ms: float
    launch_us: float


class Flood:
    """Keeps an engine's slots full, and counts its steps."""

    def __init__(self, setting: Setting, mode: str) -> None:
        library = load_library()
        kind, asynchronous = MODES[mode]
        device = kind(
            library,
            seconds=setting.step_ms / 1000,
            launch_seconds=setting.launch_us / 1e6,
            vocabulary=VOCABULARY,
        )
        self._engine = CompiledEngine(
            library,
            device,
            vocabulary=VOCABULARY,
            slots=setting.requests,
            context=CONTEXT,
            queue=4 * setting.requests,
            prefill_tokens=2 * TOKENS * max(1, setting.requests // TOKENS),
            draft_tokens=0,
            asynchronous=asynchronous,
        )
        rng = random.Random(0)
        self._prompts = itertools.cycle([[rng.randrange(VOCABULARY) for _ in range(TOKENS)] for _ in range(64)])
        self._steps = 0
        self._poll = select.poll()
        self._poll.register(self._engine.event_fd, select.POLLIN)
        for _ in range(2 * setting.requests):
            self._submit()

    def steps_a_second(self, seconds: float) -> float:
        """Run for a tenth of the time, and then for all of it, which counts."""
        thread = threading.Thread(target=self._engine.run)
        thread.start()
        self._deliver(seconds / 10)
        before, began = self._steps, time.monotonic()
        self._deliver(seconds)
        rate = (self._steps - before) / (time.monotonic() - began)
        self._engine.halt()
        thread.join()
        self._engine.close()
        return rate

    def _deliver(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self._poll.poll(100):
                os.eventfd_read(self._engine.event_fd)
            self._engine.deliver(self._count)

    def _count(self, _: float) -> None:
        self._steps += 1

    def _submit(self) -> None:
        self._engine.submit(
            GenerateTokens(next(self._prompts), TOKENS, []),
            deadline=float("inf"),
            priority=Priority.INTERACTIVE,
            on_done=self._done,
        )

    def _done(self, answer: GeneratedTokens) -> None:
        if answer.completion_tokens != TOKENS:
            raise SystemExit(f"asked for {TOKENS} tokens, got {answer}")
        self._submit()


def measure(chosen: Sequence[Setting], rounds: int, seconds: float) -> dict[Setting, dict[str, list[float]]]:
    """Steps a second by setting and mode, one a round."""
    found = {setting: {mode: list[float]() for mode in MODES} for setting in chosen}
    for _, setting, mode in itertools.product(range(rounds), chosen, MODES):
        found[setting][mode].append(Flood(setting, mode).steps_a_second(seconds))
    return found


def render(found: dict[Setting, dict[str, list[float]]]) -> str:
    """The medians as a table in Markdown."""
    columns = ["requests", "step ms", "launch us", *(f"{mode}, steps/s" for mode in MODES), "ahead : runs on"]
    rows = [columns, ["---"] * len(columns)]
    for setting, modes in found.items():
        rates = {mode: statistics.median(turns) for mode, turns in modes.items()}
        gain = rates["looks ahead"] / rates["runs on"]
        figures = [f"{setting.requests}", f"{setting.step_ms:g}", f"{setting.launch_us:g}"]
        rows.append([*figures, *(f"{rate:,.0f}" for rate in rates.values()), f"{gain:.2f}"])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    """Measure, and print a table or JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.lookahead", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="rounds of all settings (default: 3)")
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds of each turn (default: 1)")
    parser.add_argument("--requests", type=int, nargs="+", default=[64, 256], help="slots (default: 64 256)")
    parser.add_argument("--step-ms", type=float, nargs="+", default=[0.0, 0.5, 2.0], help="default: 0 0.5 2")
    parser.add_argument("--launch-us", type=float, nargs="+", default=[0.0, 200.0], help="default: 0 200")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    chosen = [Setting(*each) for each in itertools.product(options.requests, options.step_ms, options.launch_us)]
    found = measure(chosen, options.rounds, options.seconds)
    table = [asdict(setting) | {"steps_a_second": modes} for setting, modes in found.items()]
    print(json.dumps({"settings": table}) if options.json else render(found))


if __name__ == "__main__":
    main()
