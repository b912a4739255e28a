"""Evaluations with scripted models, from the questions to the verdict."""

from __future__ import annotations

import json
import random

import msgspec
import pytest

from copydesk.evaluation import Corpus, EvaluationResult, Options, Verdict, evaluate, evaluate_all, own_corpus
from copydesk.evaluation.asking import FIRST_TEXT, Progress, ask, spread
from copydesk.evaluation.table import table
from tests.unit.evaluation.subjects import Scripted

KEYS = {"gleu", "gleu_reference", "exact_match", "over_correction", "agreement", "verdict"}
"""What scripts read."""
CORPUS = own_corpus(120)
RIGHT = {example.source: example.references[0] for example in CORPUS.examples}
OWN = Options(edits="own", resamples=200)


def perfect(text: str) -> str:
    return RIGHT.get(text, text)


def lazy(text: str) -> str:
    return text


def sloppy(text: str) -> str:
    """Right, but for a word of every third sentence that it drops, clean ones too."""
    words = perfect(text).split()
    return " ".join(words[:-1]) if len(text) % 3 == 0 else " ".join(words)


def compare(candidate: Scripted, reference: Scripted | None, options: Options = OWN) -> EvaluationResult:
    return evaluate(candidate, reference, CORPUS, options)


def test_a_model_beside_itself_passes() -> None:
    result = compare(Scripted(perfect), Scripted(perfect))
    assert result.verdict is Verdict.PASS
    assert (result.agreement, result.agreement_sentences, result.exact_match) == (1.0, 1.0, 1.0)
    assert result.over_correction == 0.0
    assert result.changes == ()
    assert result.gleu == result.gleu_reference


def test_that_neither_of_the_two_is_of_any_use_is_told() -> None:
    idle = compare(Scripted(lambda text: text), Scripted(lambda text: text))
    assert idle.verdict is Verdict.PASS
    assert "no better than leaving them as they are" in idle.notes[-1]
    assert compare(Scripted(perfect), Scripted(perfect)).notes == ()


def test_a_model_that_got_worse_fails_and_each_gate_says_by_how_much() -> None:
    result = compare(Scripted(sloppy), Scripted(perfect))
    assert result.verdict is Verdict.FAIL
    gates = {gate.name: gate for gate in result.gates}
    assert gates["gleu"].verdict is Verdict.FAIL
    assert gates["gleu"].loss == pytest.approx((result.gleu_reference or 0.0) - result.gleu)
    assert gates["gleu"].low > 1.0
    assert gates["over_correction"].verdict is Verdict.FAIL


def test_a_model_that_got_better_passes() -> None:
    assert compare(Scripted(perfect), Scripted(sloppy)).verdict is Verdict.PASS


def test_several_candidates_are_held_against_one_reference_that_is_asked_once() -> None:
    reference = Scripted(perfect)
    results = evaluate_all([Scripted(perfect), Scripted(sloppy)], reference, CORPUS, OWN)
    assert [result.verdict for result in results] == [Verdict.PASS, Verdict.FAIL]
    assert sum(map(len, reference.calls)) == len({*RIGHT, *CORPUS.clean}) + 1
    assert results[1].gates == compare(Scripted(sloppy), Scripted(perfect)).gates


def test_a_small_difference_on_few_sentences_is_not_told() -> None:
    few = CORPUS.first(60)
    worse = next(example.source for example in few.examples if not example.is_clean)
    candidate = Scripted(lambda text: text if text == worse else perfect(text))
    result = evaluate(
        candidate, Scripted(perfect), few, Options(edits="own", resamples=200, margins={"gleu": 0.5})
    )
    assert result.verdict is Verdict.INCONCLUSIVE
    gate = result.gates[0]
    assert gate.needed is None or gate.needed > 0


def test_doing_nothing_scores_as_the_text_does_and_never_over_corrects() -> None:
    result = compare(Scripted(lazy), None)
    assert result.gleu == result.gleu_unchanged
    assert result.over_correction == 0.0
    assert result.metrics["recall"].candidate.value == 0.0
    assert result.metrics["precision"].candidate.value == 1.0


def test_without_a_reference_model_there_is_no_verdict() -> None:
    result = compare(Scripted(perfect), None)
    assert result.verdict is None
    assert result.gleu_reference is None
    assert result.agreement is None
    assert result.gates == ()
    assert len(result.changes) == sum(not example.is_clean for example in CORPUS.examples)


def test_the_json_object_has_what_scripts_read_and_no_sentences() -> None:
    result = compare(Scripted(sloppy), Scripted(perfect))
    plain = json.loads(msgspec.json.encode(result.to_dict()))
    assert plain.keys() >= KEYS
    assert plain["verdict"] == "fail"
    assert "changes" not in plain
    assert 0.0 <= plain["gleu"] < plain["gleu_reference"] <= 100.0
    assert plain["metrics"]["gleu"]["candidate"].keys() == {"value", "low", "high"}
    assert all(row["candidate"].keys() >= {"right", "wrong", "missed", "f0.5"} for row in plain["types"])
    assert EvaluationResult.__struct_fields__[0] == "version"


def test_intervals_hold_their_figures_and_are_the_same_every_time() -> None:
    first, again = (compare(Scripted(sloppy), Scripted(perfect)) for _ in range(2))
    assert first.gates == again.gates
    for name in ("gleu", "f0.5", "exact_match", "over_correction"):
        metric = first.metrics[name]
        assert metric == again.metrics[name]
        assert metric.candidate.low <= metric.candidate.value <= metric.candidate.high
        assert metric.difference is not None
        assert metric.difference.low <= metric.difference.value <= metric.difference.high


def test_another_seed_draws_other_resamples_but_no_other_figures() -> None:
    one = compare(Scripted(sloppy), None)
    other = compare(Scripted(sloppy), None, Options(edits="own", resamples=200, seed=9))
    assert one.gleu == other.gleu
    assert one.metrics["gleu"].candidate.low != other.metrics["gleu"].candidate.low


def test_the_order_of_sentences_changes_no_figure() -> None:
    examples = list(CORPUS.examples)
    random.Random(4).shuffle(examples)
    shuffled = evaluate(Scripted(sloppy), None, Corpus("x", tuple(examples), clean=CORPUS.clean), OWN)
    result = compare(Scripted(sloppy), None)
    for name in ("exact_match", "over_correction"):
        assert shuffled.metrics[name].candidate.value == pytest.approx(result.metrics[name].candidate.value)
    assert shuffled.gleu == pytest.approx(result.gleu, abs=0.2)  # draws of references fall otherwise


def test_changes_are_sorted_from_the_most_harmful_and_their_effects_are_of_the_corpus() -> None:
    result = compare(Scripted(sloppy), Scripted(perfect))
    effects = [change.effect for change in result.changes if change.effect is not None]
    assert effects == sorted(effects)
    assert effects[0] < 0
    assert result.changes[0].types


def few_clean(count: int) -> Corpus:
    return Corpus("few", tuple(example for example in CORPUS.examples if not example.is_clean)[:60] + tuple(
        example for example in CORPUS.examples if example.is_clean
    )[:count])  # fmt: skip


def test_over_correction_is_not_judged_on_few_clean_sentences_unless_that_was_asked_for() -> None:
    result = evaluate(Scripted(perfect), Scripted(perfect), few_clean(20), OWN)
    assert [gate.name for gate in result.gates] == ["gleu"]
    assert "20 sentences need no correction" in result.notes[0]
    asked = Options(edits="own", resamples=200, margins={"over_correction": 1.0})
    result = evaluate(Scripted(perfect), Scripted(perfect), few_clean(20), asked)
    assert result.verdict is Verdict.INCONCLUSIVE


def test_without_any_clean_sentence_there_is_no_over_correction() -> None:
    result = evaluate(Scripted(perfect), Scripted(perfect), few_clean(0), OWN)
    assert result.over_correction is None
    assert "nothing to measure" in result.notes[0]


def test_clean_sentences_of_their_own_count_for_over_correction_alone() -> None:
    data = Corpus("x", few_clean(0).examples, clean=tuple(f"Clean sentence number {n}." for n in range(80)))
    result = evaluate(Scripted(lambda text: perfect(text) + "!"), Scripted(perfect), data, OWN)
    assert result.over_correction == 1.0
    assert result.counts.clean == 80
    assert result.counts.sentences == 60
    assert any(change.effect is None for change in result.changes)


def test_every_margin_has_its_gate() -> None:
    margins = {
        "gleu": 1.0,
        "f0.5": 2.0,
        "exact_match": 3.0,
        "over_correction": 4.0,
        "agreement": 5.0,
        "latency": 9.0,
    }
    clock = [0.0]
    slow, quick = Scripted(perfect, clock=clock, seconds=0.3), Scripted(perfect, clock=clock, seconds=0.1)
    result = evaluate(slow, quick, CORPUS, Options(margins=margins, edits="own", resamples=200))
    assert {gate.name: gate.margin for gate in result.gates} == margins


def test_answers_that_were_not_used_are_counted() -> None:
    result = compare(Scripted(lazy, outcome="truncated"), None)
    assert result.candidate.kept == {"truncated": len({*RIGHT, *CORPUS.clean})}


def test_the_table_names_the_verdict_and_its_numbers() -> None:
    shown = table(compare(Scripted(sloppy, name="one"), Scripted(perfect, name="two")))
    assert "verdict: fail" in shown
    assert "GLEU lost" in shown
    assert "R:" in shown
    assert "none" not in table(compare(Scripted(sloppy), None)).casefold()


def test_both_are_asked_the_same_alone_and_by_blocks_and_nothing_twice() -> None:
    clock = [0.0]
    first = Scripted(lazy, clock=clock, seconds=0.5)
    second = Scripted(lazy, clock=clock, seconds=2.0)
    texts = [f"text {n % 20}" for n in range(25)]
    steps: list[Progress] = []
    heard = ask([first, second], texts, alone=4, block=8, progress=steps.append, clock=lambda: clock[0])
    for subject in (first, second):
        assert [len(call) for call in subject.calls] == [1, 1, 1, 1, 1, 8, 8]
        assert sorted(text for call in subject.calls[1:] for text in call) == sorted(set(texts))
        assert subject.calls[0] == [FIRST_TEXT]
    assert heard[0].alone_ms == (500.0,) * 4
    assert heard[1].alone_ms == (2000.0,) * 4
    assert (heard[0].rate, heard[1].rate) == (16.0, 4.0)
    assert steps[-1].done == steps[-1].total == 40


def test_who_goes_first_changes_each_time() -> None:
    order: list[str] = []

    def noted(name: str) -> Scripted:
        def answer(text: str) -> str:
            order.append(name)
            return text

        return Scripted(answer)

    ask([noted("a"), noted("b")], [str(n) for n in range(4)], alone=4, block=8, progress=lambda _: None)
    assert order == ["a", "b", *"abbaabba"]


@pytest.mark.parametrize(
    ("count", "expected"), [(0, []), (2, [0, 5]), (10, list(range(10))), (99, list(range(10)))]
)
def test_sentences_for_latency_come_from_all_parts(count: int, expected: list[int]) -> None:
    assert spread([str(n) for n in range(10)], count) == [str(n) for n in expected]
