"""A quantised model for people: sizes, what each kind of module and each layer loses, and how often it agrees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

from copydesk.cli.bench.render import table
from copydesk.inference.quantisation.report import ModuleReport, QuantisationReport, ScaleErrors

_SCALES = {"channel": "one scale an output channel", "tensor": "one scale a weight"}
_KINDS = ("module", "of weights, by channel", "by tensor", "of outputs, by channel", "by tensor")
_AGREEMENT = ("quantised", "modules", "scale", "same token", "")
_KEPT = "kept"


def render(directory: Path, report: QuantisationReport) -> str:
    """Return everything that is shown at the end."""
    lines = [*_outline(directory, report)]
    if report.evaluation is not None:
        lines += ["", *_by_kind(report), "", *_by_layer(report), "", *_agreement(report)]
    return "\n".join(lines)


def _outline(directory: Path, report: QuantisationReport) -> Iterator[str]:
    share = report.bytes_after / report.bytes_before
    yield f"{directory}: {report.scheme}, {_SCALES[report.weight_scale]}"
    yield f"weights    {report.bytes_before / 1e6:.0f} MB, now {report.bytes_after / 1e6:.0f} MB ({share:.0%})"
    yield f"modules    {report.quantised_modules} quantised, {report.kept_modules} kept"
    reasons = Counter(module.kept for module in report.modules if module.kept is not None)
    yield from (f"           {count} kept: {reason}" for reason, count in reasons.items())
    yield f"digest     {report.digest}"


def _by_kind(report: QuantisationReport) -> Iterator[str]:
    yield "Relative error in %, mean over the layers (kept modules: what it would be)"
    yield table(_KINDS, [_kind_row(kind, report.modules) for kind in _kinds(report)])


def _kind_row(kind: str, modules: Sequence[ModuleReport]) -> tuple[str, ...]:
    of_kind = [module for module in modules if module.kind == kind]
    errors = [(module.weight, module.output) for module in of_kind if module.weight and module.output]
    means = [
        fmean(getattr(pair[place], scale) for pair in errors)
        for place in (0, 1)
        for scale in ("channel", "tensor")
    ]
    return kind, *(_percent(mean) for mean in means)


def _by_layer(report: QuantisationReport) -> Iterator[str]:
    kinds = _kinds(report)
    yield f"Relative error of outputs in %, {_SCALES[report.weight_scale]}"
    layers = sorted({module.layer for module in report.modules})
    by_place = {(module.layer, module.kind): module for module in report.modules}
    rows = [(str(layer), *(_cell(by_place[layer, kind], report) for kind in kinds)) for layer in layers]
    yield table(("layer", *(kind.rpartition(".")[2].removesuffix("_proj") for kind in kinds)), rows)


def _cell(module: ModuleReport, report: QuantisationReport) -> str:
    if module.kept is not None or module.output is None:
        return _KEPT
    return _percent(_error(module.output, report.weight_scale))


def _agreement(report: QuantisationReport) -> Iterator[str]:
    if report.evaluation is not None:
        of = f"{report.evaluation.answer_tokens} tokens of its answers to {report.evaluation.texts} texts"
        yield f"Agreement with the original, of {of}"
    rows = [
        (
            entry.variant,
            str(entry.quantised_modules),
            entry.weight_scale,
            f"{entry.share:.2%}",
            "this model" if entry.planned else "",
        )
        for entry in report.agreement
    ]
    yield table(_AGREEMENT, rows)


def _kinds(report: QuantisationReport) -> list[str]:
    return list(dict.fromkeys(module.kind for module in report.modules))


def _error(errors: ScaleErrors, scale: str) -> float:
    return errors.channel if scale == "channel" else errors.tensor


def _percent(share: float) -> str:
    return f"{100 * share:.2f}"
