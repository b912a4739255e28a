"""Requests a second of an engine by itself, setting by setting."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from copydesk.inference.engine.native import CompiledEngine, NativeOptions, Precision, open_engine
from copydesk.inference.gpu_check.models import CheckedModel
from copydesk.inference.gpu_check.rate import Loop
from copydesk.inference.gpu_check.rows import Row
from copydesk.inference.gpu_check.workload import Asked

PART = "engine"
FIFTY, CORRECTION = "50/50", "correction"
START = "bf16, synchronous, inputs in Python"
BF16, FP8 = "bf16", "fp8"
FP8_DRAFTS = "fp8, drafts"


@dataclass(frozen=True, slots=True)
class Setting:
    """How an engine is run; what is not named is as served by default."""

    name: str
    workload: str
    fp8: bool = False
    asynchronous: bool = True
    compiled_inputs: bool = True
    graphs: bool = True
    drafts: bool = False


SETTINGS = (
    Setting(START, FIFTY, asynchronous=False, compiled_inputs=False),
    Setting("bf16, synchronous", FIFTY, asynchronous=False),
    Setting("bf16, inputs in Python", FIFTY, compiled_inputs=False),
    Setting(BF16, FIFTY),
    Setting(FP8, FIFTY, fp8=True),
    Setting(FP8, CORRECTION, fp8=True),
    Setting(FP8_DRAFTS, CORRECTION, fp8=True, drafts=True),
    Setting("bf16, drafts", CORRECTION, drafts=True),
    Setting("fp8, synchronous", FIFTY, fp8=True, asynchronous=False),
    Setting("bf16, no graphs", FIFTY, graphs=False),
    Setting("fp8, no graphs", FIFTY, fp8=True, graphs=False),
)
"""In the order of what is to be known first, since time may run out."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is done: `slots` run side by side, twice as many are in flight, each of `tokens` in and out."""

    slots: int
    tokens: int
    graphs: int
    warm_seconds: float
    seconds: float


FULL = Scale(slots=64, tokens=50, graphs=160, warm_seconds=1.0, seconds=3.0)
QUICK = Scale(slots=4, tokens=8, graphs=6, warm_seconds=0.0, seconds=0.1)

_CONTEXT = {FIFTY: 128, CORRECTION: 256}
_DRAFT_TOKENS = 192


def measure_rates(
    model: CheckedModel, device: torch.device, scale: Scale, settings: Sequence[Setting] = SETTINGS
) -> Iterator[Row]:
    """A row for each setting; one that fails says why, and the next one is tried."""
    for setting in settings:
        try:
            yield _measured(model, device, scale, setting)
        except Exception as error:
            note = f"{type(error).__name__}: {error}"[:200]
            yield Row(PART, setting.name, model.name, setting.workload, ok=False, note=note)
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()


def _measured(model: CheckedModel, device: torch.device, scale: Scale, setting: Setting) -> Row:
    context = _CONTEXT[setting.workload]
    asked = _asked(model, setting.workload, scale, context)
    directory = model.fp8 if setting.fp8 else model.bf16
    loop = Loop(open_compiled(directory, _options(device, scale, setting)), asked, 2 * scale.slots)
    answered = loop.run(scale.warm_seconds, scale.seconds)
    passes = answered.passes / max(1, answered.requests)
    return Row(
        PART,
        setting.name,
        model.name,
        setting.workload,
        value=round(answered.rate, 1),
        unit="requests/s",
        ok=answered.wrong == 0 and answered.requests > 0,
        note=f"{passes:.1f} passes a request" + (f", {answered.wrong} answers wrong" if answered.wrong else ""),
    )


def _asked(model: CheckedModel, workload: str, scale: Scale, context: int) -> list[Asked]:
    count = 8 * scale.slots
    if workload == CORRECTION:
        return model.corrections(count, scale.tokens, context)
    return model.random_prompts(count, scale.tokens)


def _options(device: torch.device, scale: Scale, setting: Setting) -> NativeOptions:
    options = NativeOptions(
        precision=Precision.FP8 if setting.fp8 else Precision.BFLOAT16,
        slots=scale.slots,
        context=_CONTEXT[setting.workload],
        queue=4 * scale.slots,
        draft_tokens=_DRAFT_TOKENS if setting.drafts else 0,
        device=str(device),
        asynchronous=setting.asynchronous,
        graphs=scale.graphs if setting.graphs else 0,
        compiled_inputs=setting.compiled_inputs,
    )
    return replace(options, threads=1) if device.type == "cpu" else options


def open_compiled(directory: Path, options: NativeOptions) -> CompiledEngine:
    """Open an engine that steps by itself; raises `RuntimeError` where there is no compiler for it."""
    engine = open_engine(directory, options)
    if not isinstance(engine, CompiledEngine):
        raise RuntimeError("the compiled engine cannot be had: g++ is needed")
    return engine
