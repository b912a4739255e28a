"""Precision plans by name: what is tried of a model, and in which arithmetic it would be served. Pure data.

On a processor the 8-bit engine computes everything in INT8, whatever a plan keeps, and FP8 is only emulated; on an
accelerator FP8 is what makes it faster, and INT8 gains nothing. So each has its own list.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from copydesk.common.errors import CopydeskError

ORIGINAL = "original"
LOADED_INT8 = "original-int8"
GROUPS = ("attention", "mlp", "first-last")
NOT_HERE = (
    "FP8 plans were left out: this processor only emulates FP8, many times slower, so that their speed cannot be "
    "measured here; --emulate judges their quality, for an accelerator"
)
KEEPS_NOTHING = (
    "plans that keep modules were left out: the INT8 engine computes what they keep in INT8 as well, so that they "
    "answer as int8 does and are no faster"
)
EMULATED = (
    "FP8 is emulated here: what it answers is what an accelerator computes, its speed is not; emulated plans are "
    "ranked by their bytes, which is what an accelerator has to read for each step"
)
_NAME = re.compile(r"(fp8|int8)(-per-tensor)?(?:-keep-(.+))?")


class UnknownPlanError(CopydeskError):
    """A plan on the command line that is none: `name`."""

    exit_code = 2

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"{name!r} is no plan; expected {ORIGINAL}, {LOADED_INT8}, or fp8 or int8, then -per-tensor, "
            "-keep-attention, -keep-mlp or -keep-first-last"
        )


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One way to store and compute a model.

    `scheme` "none" leaves the weights as they are. `dtype` is the engine's arithmetic, as in
    COPYDESK_INFERENCE_DTYPE; with `emulated`, what it computes is right and its speed means nothing.
    """

    name: str
    scheme: str = "none"
    per_tensor: bool = False
    keep: tuple[str, ...] = ()
    dtype: str = "auto"
    emulated: bool = False

    @property
    def quantised(self) -> bool:
        """Whether its weights are other ones than the model came with."""
        return self.scheme != "none"


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The plans that are tried, in their order, and what was left out, and why."""

    plans: tuple[Plan, ...]
    notes: tuple[str, ...] = ()


def plans_for(
    *, device: str, exact: str, names: Sequence[str] = (), per_tensor: bool = False, emulate: bool = False
) -> Choice:
    """Say what to try on a device: what it computes fast, or the plans of these names.

    `exact` is the arithmetic in which the model is served as it was trained.

    Raises:
        UnknownPlanError: A name is that of no plan.
    """
    accelerated = device.startswith("cuda")
    if names:
        plans = tuple(named(name, exact, accelerated=accelerated) for name in dict.fromkeys(names))
        return Choice(plans=plans, notes=_notes(plans))
    wanted = [ORIGINAL]
    if not accelerated:
        wanted += [LOADED_INT8, "int8"] + (["int8-per-tensor"] if per_tensor else [])
    if accelerated or emulate:
        wanted += ["fp8", *(f"fp8-keep-{group}" for group in GROUPS)]
        wanted += ["fp8-per-tensor"] if per_tensor else []
    plans = tuple(named(name, exact, accelerated=accelerated) for name in wanted)
    left_out = () if accelerated else ((KEEPS_NOTHING,) if emulate else (NOT_HERE, KEEPS_NOTHING))
    return Choice(plans=plans, notes=(*left_out, *_notes(plans)))


def named(name: str, exact: str, *, accelerated: bool) -> Plan:
    """Return the plan of that name.

    Raises:
        UnknownPlanError: There is none.
    """
    if name == ORIGINAL:
        return Plan(name=name, dtype=exact)
    if name == LOADED_INT8 and not accelerated:
        return Plan(name=name, dtype="int8")
    found = _NAME.fullmatch(name)
    if found is None or (found[3] is not None and found[3] not in GROUPS):
        raise UnknownPlanError(name)
    scheme = found[1]
    return Plan(
        name=name,
        scheme=scheme,
        per_tensor=found[2] is not None,
        keep=(found[3],) if found[3] else (),
        dtype=exact if scheme == "int8" and accelerated else scheme,
        emulated=scheme == "fp8" and not accelerated,
    )


def exact_arithmetic(stored: Sequence[str], *, device: str, fast_bfloat16: bool) -> str:
    """Return the arithmetic in which a model is what it was trained to be, given the types of its weights."""
    if not device.startswith("cuda") and ("F32" in stored or not fast_bfloat16):
        return "float32"
    return "bfloat16"


def _notes(plans: Sequence[Plan]) -> tuple[str, ...]:
    return (EMULATED,) if any(plan.emulated for plan in plans) else ()
