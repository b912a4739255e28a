"""Which modules stay as they are: those asked for, those that kernels cannot take, and what goes with either."""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from copydesk.inference.quantisation.errors import (
    InvalidPatternError,
    NothingToQuantiseError,
    UnmatchedPatternError,
)
from copydesk.inference.quantisation.modules import HEAD, LinearModule
from copydesk.inference.quantisation.scheme import Quantisation, Scheme, WeightScale

FP8_MULTIPLE = 16
"""What both sides of a weight must be multiples of: `torch._scaled_mm` and its like take nothing else in FP8."""

ATTENTION, MLP, FIRST_LAST = "attention", "mlp", "first-last"
GROUPS = (ATTENTION, MLP, FIRST_LAST)

_REGEX = "re:"
_Names = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class PrecisionPlan:
    """What to quantise, and how.

    `keep` names what stays as it is: `attention`, `mlp`, `first-last` (the first and the last layer), the full
    names of modules with shell-like wildcards, or, after `re:`, a regular expression that matches them from their
    beginning. `per_tensor` gives each weight one scale instead of one an output channel.
    """

    scheme: Scheme = Scheme.FP8
    per_tensor: bool = False
    keep: tuple[str, ...] = ()

    @property
    def weight_scale(self) -> WeightScale:
        """What shares a scale."""
        return WeightScale.TENSOR if self.per_tensor else WeightScale.CHANNEL


@dataclass(frozen=True, slots=True)
class Resolved:
    """A plan for one model: how it is quantised, and why the modules in `kept` are not, by full name."""

    quantisation: Quantisation
    kept: dict[str, str]


def resolve(plan: PrecisionPlan, modules: Sequence[LinearModule]) -> Resolved:
    """Apply a plan to a model. Kept modules are listed by name, so that no reader needs to interpret patterns.

    Raises:
        UnmatchedPatternError, InvalidPatternError: an entry of `keep` is a mistake.
        NothingToQuantiseError: everything would be kept.
    """
    reasons = {**_unsuited(plan.scheme, modules), **_asked_for(plan.keep, modules)}
    kept = {module.name: reason for module in modules if (reason := _reason(module, reasons)) is not None}
    if len(kept) == len(modules):
        raise NothingToQuantiseError(tuple(dict.fromkeys(kept.values())))
    return Resolved(Quantisation(plan.scheme, plan.weight_scale, (HEAD, *kept)), kept)


def _reason(module: LinearModule, reasons: dict[str, str]) -> str | None:
    """Why it is kept; modules that are computed together are kept together."""
    if module.name in reasons:
        return reasons[module.name]
    partner = next((name for name in module.fused if name in reasons), None)
    return None if partner is None else f"computed in one product with {partner}"


def _unsuited(scheme: Scheme, modules: Iterable[LinearModule]) -> dict[str, str]:
    if scheme is not Scheme.FP8:
        return {}
    return {
        module.name: f"{module.rows} x {module.columns}: FP8 kernels need multiples of {FP8_MULTIPLE}"
        for module in modules
        if module.rows % FP8_MULTIPLE or module.columns % FP8_MULTIPLE
    }


def _asked_for(keep: Iterable[str], modules: Sequence[LinearModule]) -> dict[str, str]:
    reasons: dict[str, str] = {}
    for entry in keep:
        names = _named(entry, modules)
        reasons |= {name: f"--keep {entry}" for name in names if name not in reasons}
    return reasons


def _named(entry: str, modules: Sequence[LinearModule]) -> list[str]:
    if entry == ATTENTION:
        return [module.name for module in modules if module.kind.startswith("self_attn.")]
    if entry == MLP:
        return [module.name for module in modules if module.kind.startswith("mlp.")]
    if entry == FIRST_LAST:
        ends = (modules[0].layer, modules[-1].layer)
        return [module.name for module in modules if module.layer in ends]
    names = [*(module.name for module in modules), HEAD]
    matches = _matcher(entry)
    found = [name for name in names if matches(name)]
    if not found:
        raise UnmatchedPatternError(entry, _near(entry, names))
    return found


def _matcher(entry: str) -> _Names:
    if not entry.startswith(_REGEX):
        return lambda name: fnmatch.fnmatchcase(name, entry)
    try:
        pattern = re.compile(entry.removeprefix(_REGEX))
    except re.error as error:
        raise InvalidPatternError(entry, str(error)) from error
    return lambda name: pattern.match(name) is not None


def _near(entry: str, names: Sequence[str]) -> tuple[str, ...]:
    """What looks like the entry and does match: groups, patterns for a part such as `q_proj`, and whole names."""
    bare = re.sub(r"[^\w.-]+", "", entry.removeprefix(_REGEX)).strip(".")
    offered = {**{group: group for group in GROUPS}, **_patterns(names), **{name: name for name in names}}
    for text in (bare, bare.rpartition(".")[2]):
        close = difflib.get_close_matches(text, sorted(set(offered.values())), n=3, cutoff=0.6)
        if close:
            return tuple(pattern for pattern, part in offered.items() if part in close)[:3]
    return ()


def _patterns(names: Iterable[str]) -> dict[str, str]:
    """A pattern for each part of the names below the layer: `*.self_attn.*`, `*.q_proj`, with that part."""
    patterns: dict[str, str] = {}
    for name in names:
        *_, block, kind = name.split(".") if "." in name else ("", "", "")
        if kind:
            patterns |= {f"*.{block}.*": block, f"*.{kind}": kind}
    return patterns
