"""What quantisation costs: a layered pass against transformers, answers against its greedy ones, the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from copydesk.inference.correction.corrector import EncodedSentence
from copydesk.inference.engine import GenerateTokens
from copydesk.inference.quantisation.arithmetic import quantise_tokens
from copydesk.inference.quantisation.conversion import quantise_directory
from copydesk.inference.quantisation.judging.answers import find_answers
from copydesk.inference.quantisation.judging.forward import Activations, Forward, best_tokens, plain_product
from copydesk.inference.quantisation.judging.sweep import judge, variants_of
from copydesk.inference.quantisation.judging.texts import default_texts
from copydesk.inference.quantisation.plan import PrecisionPlan, resolve
from copydesk.inference.quantisation.report import Measured
from copydesk.inference.quantisation.scheme import Quantisation, Scheme, WeightScale
from copydesk.inference.quantisation.source import Source, open_source
from tests.fixtures.tiny_model import write_tiny_model
from tests.unit.engine.reference import NEAR_TIE, greedy, write_reference


def question(prompt: list[int], source: list[int], stops: list[int], most: int = 12) -> EncodedSentence:
    return EncodedSentence("", prompt, source, most, stops, fits=True)


QUESTIONS = [
    question([5, 9, 2, 7], [9, 2, 7], [3]),
    question([1, 30, 31], [], []),
    question([40, 41, 42, 43, 44, 45, 46], [41, 42, 43, 44, 45], [7, 8]),
]


@pytest.mark.parametrize("shape", ["plain", "tied", "biases", "rope-llama3", "mistral", "qwen2", "wide-heads"])
def test_the_layered_pass_computes_what_transformers_computes(tmp_path: Path, shape: str) -> None:
    model = write_reference(shape, tmp_path)
    source = open_source(tmp_path)
    sequences = [[3, 1, 4, 1, 5, 9], [2], [6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4]]
    with torch.inference_mode():
        (states,) = Forward(source, sequences, Scheme.FP8).run(1, plain_product(source), lambda _: None)
        expected = torch.cat([model.model(torch.tensor([tokens])).last_hidden_state[0] for tokens in sequences])
        torch.testing.assert_close(states, expected, rtol=1e-3, atol=1e-4)
        scores = model.lm_head(expected)
    chosen = best_tokens(source, states)
    assert (scores.max(-1).values - scores.gather(1, chosen[:, None])[:, 0]).max() < NEAR_TIE


@pytest.mark.parametrize("shape", ["plain", "qwen2"])
def test_answers_are_greedy_whatever_was_guessed(tmp_path: Path, shape: str) -> None:
    model = write_reference(shape, tmp_path)
    expected = []
    for each in QUESTIONS:
        answer = greedy(model, GenerateTokens(each.prompt, each.max_tokens, []))
        ends = [place + 1 for place, token in enumerate(answer) if token in each.stop_ids]
        expected.append(answer[: min([*ends, len(answer)])])
    helped = [
        question(each.prompt, answer, each.stop_ids) for each, answer in zip(QUESTIONS, expected, strict=True)
    ]
    source = open_source(tmp_path)
    with torch.inference_mode():
        assert find_answers(source, QUESTIONS, lambda _: None) == expected
        assert find_answers(source, helped, lambda _: None) == expected


def test_activations_are_rounded_as_the_reference_arithmetic_rounds_them() -> None:
    exact = torch.randn(7, 33) * torch.tensor([1e-3, 1.0, 50.0, 0.0, 1.0, 2.0, 3.0])[:, None]
    for scheme in Scheme:
        stored, scale = quantise_tokens(exact.numpy(), scheme)
        expected = torch.from_numpy(stored.astype("float32")) * torch.from_numpy(scale)
        torch.testing.assert_close(Activations(exact, scheme).rounded, expected, rtol=0, atol=0)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Source:
    return open_source(write_tiny_model(tmp_path_factory.mktemp("tiny"), dtype="bfloat16"))


def measure(source: Source, plan: PrecisionPlan) -> Measured:
    from copydesk.inference.quantisation.modules import linear_modules

    quantisation = resolve(plan, linear_modules(source.config)).quantisation
    return judge(source, quantisation, QUESTIONS, lambda _stage, _share: None)


@pytest.mark.parametrize(("scheme", "least", "most"), [(Scheme.FP8, 0.02, 0.04), (Scheme.INT8, 0.003, 0.02)])
def test_errors_are_those_of_eight_bits(tiny: Source, scheme: Scheme, least: float, most: float) -> None:
    measured = measure(tiny, PrecisionPlan(scheme))
    assert len(measured.weight) == len(measured.output) == 14
    for errors in measured.weight.values():
        assert least < errors.channel <= errors.tensor * 1.05 < most
    for name, errors in measured.output.items():
        assert measured.weight[name].channel * 0.8 < errors.channel < 3 * most
    assert measured.evaluation.texts == 3
    assert 0.5 < min(entry.share for entry in measured.agreement) <= 1


def test_agreement_is_of_the_choices_at_the_answers_tokens(tiny: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    def loses_nothing(weight: Any, *_: Any) -> tuple[Any, Any]:
        return weight, weight[:1, :1] * 0 + 1

    from copydesk.inference.quantisation.judging import sweep

    monkeypatch.setattr(sweep, "quantise_weight", loses_nothing)
    monkeypatch.setattr(sweep, "dequantise_weight", lambda stored, _scale: stored)
    monkeypatch.setattr(Activations, "rounded", property(lambda self: self.exact))
    measured = measure(tiny, PrecisionPlan())
    with torch.inference_mode():
        answers = find_answers(tiny, QUESTIONS, lambda _: None)
    assert measured.evaluation.answer_tokens == sum(map(len, answers))
    assert {entry.share for entry in measured.agreement} == {1.0}
    monkeypatch.setattr(sweep, "dequantise_weight", lambda stored, _scale: -stored)
    assert max(entry.share for entry in measure(tiny, PrecisionPlan()).agreement) < 0.9


def test_variants_are_attention_quantised_or_kept_by_either_scale_and_the_plan_once(tiny: Source) -> None:
    def named(quantisation: Quantisation) -> list[tuple[str, str, bool]]:
        found = variants_of(tiny, quantisation)
        return [(v.name, v.quantisation.weight_scale.value, v.planned) for v in found]

    whole = Quantisation(Scheme.FP8, WeightScale.TENSOR, ("lm_head",))
    assert named(whole) == [
        ("all layers", "channel", False),
        ("all layers", "tensor", True),
        ("attention kept", "channel", False),
        ("attention kept", "tensor", False),
    ]
    mixed = Quantisation(Scheme.FP8, WeightScale.CHANNEL, ("lm_head", "model.layers.0.mlp.down_proj"))
    assert named(mixed)[-1] == ("as planned", "channel", True)
    assert [planned for _, _, planned in named(mixed)] == [False] * 4 + [True]


def test_the_report_has_every_module_with_why_it_was_kept(source: Path, tmp_path: Path) -> None:
    report = quantise_directory(source, tmp_path / "out", PrecisionPlan(keep=("*.1.mlp.up_proj",)))
    kept = {module.name: module.kept for module in report.modules if module.kept is not None}
    assert kept == {
        "model.layers.1.mlp.gate_proj": "computed in one product with model.layers.1.mlp.up_proj",
        "model.layers.1.mlp.up_proj": "--keep *.1.mlp.up_proj",
    }
    assert (report.quantised_modules, report.kept_modules) == (12, 2)
    assert all(module.weight and module.output for module in report.modules)
    assert report.bytes_after < 0.8 * report.bytes_before
    assert report.evaluation is not None
    assert report.evaluation.texts == report.evaluation.answer_tokens == len(default_texts())


def test_the_texts_are_sentences_of_one_line_each_once() -> None:
    texts = default_texts()
    assert len(set(texts)) == len(texts) == 40
    assert all(text[-1] in ".?!" and text[0].isupper() and "  " not in text for text in texts)
