"""One sweep over the layers: the original and its quantised variants side by side, every module measured.

The variants are emulated in float32: weights quantised and dequantised, activations rounded token by token, sums
exact. Each takes the original's answers as given, token by token, so that a choice is judged by itself and not by
what an earlier one led to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name

from copydesk.inference.correction.corrector import EncodedSentence
from copydesk.inference.quantisation.arithmetic import dequantise_weight, quantise_weight
from copydesk.inference.quantisation.errors import NothingToQuantiseError
from copydesk.inference.quantisation.judging.answers import find_answers
from copydesk.inference.quantisation.judging.forward import Activations, Forward, best_tokens, read_bias
from copydesk.inference.quantisation.modules import LinearModule, linear_modules
from copydesk.inference.quantisation.plan import ATTENTION, PrecisionPlan, resolve
from copydesk.inference.quantisation.report import Agreement, Evaluation, Measured, ScaleErrors
from copydesk.inference.quantisation.scheme import Quantisation, WeightScale
from copydesk.inference.quantisation.source import Source

_SHARE_OF_ANSWERS = 0.5  # of the work, about


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to quantise the model; `planned` is the one that was asked for."""

    name: str
    quantisation: Quantisation
    planned: bool


def judge(
    source: Source,
    quantisation: Quantisation,
    questions: Sequence[EncodedSentence],
    progress: Callable[[str, float], None],
) -> Measured:
    """Measure what `quantisation` and its variants cost the model on these questions."""
    with torch.inference_mode():
        answers = find_answers(
            source, questions, lambda share: progress("asking the original", share * _SHARE_OF_ANSWERS)
        )
        return _sweep(
            source,
            quantisation,
            [(question.prompt, answer) for question, answer in zip(questions, answers, strict=True)],
            lambda share: progress("comparing", _SHARE_OF_ANSWERS + share * (1 - _SHARE_OF_ANSWERS)),
        )


def variants_of(source: Source, quantisation: Quantisation) -> tuple[Variant, ...]:
    """Attention quantised or kept, with either kind of scale, and what was asked for if it is none of these."""
    modules = linear_modules(source.config)
    found: list[Variant] = []
    for name, keep in (("all layers", ()), ("attention kept", (ATTENTION,))):
        for scale in WeightScale:
            plan = PrecisionPlan(quantisation.scheme, scale is WeightScale.TENSOR, keep)
            try:
                variant = resolve(plan, modules).quantisation
            except NothingToQuantiseError:
                continue
            found.append(Variant(name, variant, variant == quantisation))
    if not any(variant.planned for variant in found):
        found.append(Variant("as planned", quantisation, planned=True))
    return tuple(found)


class _MeasuringProduct:
    """Applies modules to the original's activations, the first stream, and to those of each variant."""

    def __init__(self, source: Source, variants: Sequence[Variant]) -> None:
        self._source = source
        self._scheme = variants[0].quantisation.scheme
        self._variants = variants
        self.weight: dict[str, ScaleErrors] = {}
        self.output: dict[str, ScaleErrors] = {}

    def __call__(self, module: LinearModule, inputs: Sequence[Activations]) -> list[torch.Tensor]:
        """Return what the module makes of each stream."""
        original = self._source.tensors[module.weight].floats()
        exact, bias = torch.from_numpy(original), read_bias(self._source, module)
        outputs: list[torch.Tensor | None] = [F.linear(inputs[0].exact, exact), *[None] * len(self._variants)]
        weight_errors, output_errors = {}, {}
        for scale in WeightScale:
            stored = quantise_weight(original, self._scheme, scale)
            weight = torch.from_numpy(dequantise_weight(*stored))
            weight_errors[scale.value] = _relative_error(weight, exact)
            output_errors[scale.value] = _relative_error(F.linear(inputs[0].rounded, weight), outputs[0])
            for place, variant in enumerate(self._variants, 1):
                how = variant.quantisation
                if how.weight_scale is scale and how.quantises(module.name):
                    outputs[place] = F.linear(inputs[place].rounded, weight)
        self.weight[module.name] = ScaleErrors(**weight_errors)
        self.output[module.name] = ScaleErrors(**output_errors)
        products = [
            F.linear(each.exact, exact) if output is None else output
            for each, output in zip(inputs, outputs, strict=True)
        ]
        return products if bias is None else [product + bias for product in products]


def _sweep(
    source: Source,
    quantisation: Quantisation,
    answered: Sequence[tuple[list[int], list[int]]],
    progress: Callable[[float], None],
) -> Measured:
    variants = variants_of(source, quantisation)
    product = _MeasuringProduct(source, variants)
    sequences = [[*prompt, *answer[:-1]] for prompt, answer in answered]
    states = Forward(source, sequences, quantisation.scheme).run(1 + len(variants), product, progress)
    chosen = [best_tokens(source, _at_choices(state, sequences, answered)) for state in states]
    modules = linear_modules(source.config)
    return Measured(
        evaluation=Evaluation(
            texts=len(answered),
            tokens=sum(map(len, sequences)),
            answer_tokens=len(chosen[0]),
        ),
        weight=product.weight,
        output=product.output,
        agreement=tuple(
            Agreement(
                variant=variant.name,
                weight_scale=variant.quantisation.weight_scale.value,
                quantised_modules=sum(variant.quantisation.quantises(module.name) for module in modules),
                planned=variant.planned,
                share=(tokens == chosen[0]).double().mean().item(),
            )
            for variant, tokens in zip(variants, chosen[1:], strict=True)
        ),
    )


def _at_choices(
    states: torch.Tensor, sequences: Sequence[Sequence[int]], answered: Sequence[tuple[list[int], list[int]]]
) -> torch.Tensor:
    """The states at which the tokens of the answers are chosen: the last one of each prompt, and on from there."""
    of_each = torch.split_with_sizes(states, list(map(len, sequences)))
    return torch.cat([state[-len(answer) :] for state, (_, answer) in zip(of_each, answered, strict=True)])


def _relative_error(found: torch.Tensor, exact: torch.Tensor | None) -> float:
    if exact is None or not (size := exact.norm().item()):
        return 0.0
    return float((found - exact).norm().item() / size)
