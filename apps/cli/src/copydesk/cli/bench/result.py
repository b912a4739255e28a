"""The whole run as one object, for programs, and to be rendered again later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from copydesk.cli.bench.figures import (
    RANDOM,
    Figures,
    Level,
    Ratios,
    best_level,
    figures,
    levels,
    of_engine,
    random_ratios,
    ratios,
)
from copydesk.cli.bench.machine import Machine
from copydesk.cli.bench.measure import Measurement
from copydesk.cli.bench.setting import OURS, VLLM, Setting


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that was to be measured and failed: why, and the end of its log."""

    setting: str
    reason: str
    log: tuple[str, ...] = ()


class Skipped(msgspec.Struct, frozen=True, kw_only=True):
    """An engine that is not installed, and the command that installs it."""

    engine: str
    reason: str
    command: str


class RandomFigures(msgspec.Struct, frozen=True, kw_only=True):
    """50 random tokens in, 50 out, no drafts, no end before them; and our rates over that of vLLM in bfloat16."""

    engines: dict[str, Level]
    ratio_to_vllm_bf16: dict[str, float]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a run says."""

    engines: dict[str, Figures]
    ratio_to_best_vllm: Ratios
    ratio_to_vllm_token_by_token: Ratios
    ratio_to_vllm_ngram: Ratios
    random_50_50: RandomFigures
    skipped: tuple[Skipped, ...]
    left_out: tuple[LeftOut, ...]
    versions: dict[str, str]
    options: dict[str, str]
    resident_mb: dict[str, float]
    machine: Machine
    model_digest: str
    command: str
    started_at: str
    duration_s: float
    rounds: tuple[Measurement, ...]


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a run beside its measurements."""

    skipped: tuple[Skipped, ...]
    left_out: tuple[LeftOut, ...]
    versions: dict[str, str]
    resident_mb: dict[str, float]
    machine: Machine
    model_digest: str
    command: str
    started_at: str
    duration_s: float


def assemble(settings: Sequence[Setting], measurements: Sequence[Measurement], facts: Facts) -> Result:
    """Compute every figure of a run; settings that were left out midway have none."""
    gone = {one.setting for one in facts.left_out}
    present = [setting for setting in settings if setting.name not in gone]
    computed = {setting.name: figures(measurements, setting) for setting in present}
    found = {name: one for name, one in computed.items() if one is not None}
    ours = of_engine(found, present, OURS)
    return Result(
        engines=found,
        ratio_to_best_vllm=ratios(ours, of_engine(found, present, VLLM)),
        ratio_to_vllm_token_by_token=ratios(ours, of_engine(found, present, VLLM, plain=True)),
        ratio_to_vllm_ngram=ratios(ours, of_engine(found, present, VLLM, plain=False)),
        random_50_50=_random(measurements, present),
        options={setting.name: setting.options for setting in present if setting.options},
        rounds=tuple(msgspec.structs.replace(one, answers=()) for one in measurements),
        **_fields(facts),
    )


def _random(measurements: Sequence[Measurement], settings: Sequence[Setting]) -> RandomFigures:
    found = {setting.name: levels(measurements, setting.name, RANDOM) for setting in settings}
    best = {name: best_level(some) for name, some in found.items() if some}
    return RandomFigures(engines=best, ratio_to_vllm_bf16=random_ratios(best))


def _fields(facts: Facts) -> dict[str, Any]:
    return {name: getattr(facts, name) for name in facts.__struct_fields__}
