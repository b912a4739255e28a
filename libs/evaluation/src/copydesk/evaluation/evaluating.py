"""Evaluate a candidate, alone or beside a reference model: ask, score, judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from copydesk.evaluation.answers import Heard, Subject
from copydesk.evaluation.asking import OnProgress, Progress, ask
from copydesk.evaluation.corpus import Corpus
from copydesk.evaluation.errant_edits import annotator_of
from copydesk.evaluation.figures import Figure, Scored, Scorer
from copydesk.evaluation.gates import (
    DEFAULT_MARGINS,
    LEAST_TO_PASS,
    Gate,
    Loss,
    check_margins,
    distance_of,
    judge,
    loss_of,
    overall,
    rise_of,
    slowdown_of,
)
from copydesk.evaluation.resampling import RESAMPLES, interval
from copydesk.evaluation.result import (
    Change,
    Counts,
    EditFigures,
    Estimate,
    EvaluationResult,
    Metric,
    Told,
    TypeRow,
)
from copydesk.evaluation.typed_edits import OwnAnnotator
from copydesk.text.metrics import EditScore

_CORRECTED = "corrected"


@dataclass(frozen=True, slots=True)
class Options:
    """How to evaluate.

    `margins` are by gate, on top of `DEFAULT_MARGINS`. `alone` sentences are asked one at a time, which tells
    their latency, the others `block` at a time. `edits` is who finds edits: auto, own or errant.
    """

    margins: Mapping[str, float] = field(default_factory=dict)
    alone: int = 40
    block: int = 32
    resamples: int = RESAMPLES
    seed: int = 1
    edits: str = "auto"


@dataclass(frozen=True, slots=True)
class _Side:
    """One model: who it is, what it said, and what that is worth."""

    subject: Subject
    heard: Heard
    scored: Scored


def evaluate(
    candidate: Subject,
    reference: Subject | None,
    data: Corpus,
    options: Options | None = None,
    progress: OnProgress = lambda _: None,
) -> EvaluationResult:
    """Have both correct the data, and compare. Without a reference model there is no verdict.

    Raises:
        MarginError: A margin is not for a gate or cannot be.
        ErrantMissingError: ERRANT was asked for by name and is not installed.
    """
    return evaluate_all([candidate], reference, data, options, progress)[0]


def evaluate_all(
    candidates: Sequence[Subject],
    reference: Subject | None,
    data: Corpus,
    options: Options | None = None,
    progress: OnProgress = lambda _: None,
) -> list[EvaluationResult]:
    """Do the same for several candidates, in their order; the reference model is asked once for all of them.

    They take turns with each other as well, so that their latencies can be compared.

    Raises:
        MarginError: A margin is not for a gate or cannot be.
        ErrantMissingError: ERRANT was asked for by name and is not installed.
    """
    options = options or Options()
    check_margins(options.margins)
    annotator = annotator_of(options.edits)
    subjects = [*candidates, *([] if reference is None else [reference])]
    progress(Progress("finding the edits wanted", 0, 0))
    scorer = Scorer(data, annotator, resamples=options.resamples, seed=options.seed)
    heard = ask(subjects, scorer.asked, alone=options.alone, block=options.block, progress=progress)
    progress(Progress("scoring", 0, 0))
    sides = [_Side(*pair, scorer.score(pair[1])) for pair in zip(subjects, heard, strict=True)]
    theirs = None if reference is None else sides.pop()
    return [_result(scorer, ours, theirs, annotator.name, options) for ours in sides]


def _result(
    scorer: Scorer, ours: _Side, theirs: _Side | None, edits_by: str, options: Options
) -> EvaluationResult:
    agreement = scorer.agreement(ours.heard, theirs.heard) if theirs else {}
    gates, notes = _gates(ours.scored, theirs.scored, agreement, options) if theirs else ((), ())
    gleu, unchanged = ours.scored.figures["gleu"].value, scorer.count_unchanged().score()
    metrics = _metrics(ours.scored, theirs.scored if theirs else None)
    metrics |= {name: Metric(sentences=one.sentences, candidate=_estimate(one)) for name, one in agreement.items()}
    over = ours.scored.figures.get("over_correction")
    return EvaluationResult(
        verdict=overall(gates) if theirs else None,
        gleu=gleu,
        gleu_reference=theirs.scored.figures["gleu"].value if theirs else None,
        gleu_unchanged=unchanged,
        exact_match=ours.scored.figures["exact_match"].value,
        over_correction=over.value if over else None,
        agreement=agreement["agreement"].value if theirs else None,
        agreement_sentences=agreement["agreement_sentences"].value if theirs else None,
        candidate=_told(ours),
        reference=_told(theirs) if theirs else None,
        data=scorer.corpus.name,
        tokenised=scorer.corpus.tokenised,
        counts=_counts(scorer, ours, theirs),
        gates=gates,
        metrics=metrics,
        edits_by=edits_by,
        types=_types(ours.scored, theirs.scored if theirs else None),
        notes=(*notes, *_useless(gleu, unchanged)),
        resamples=options.resamples,
        seed=options.seed,
        changes=_changes(scorer, ours, theirs),
    )


def _useless(gleu: float, unchanged: float) -> tuple[str, ...]:
    """A verdict compares with another model: it does not say that either of the two is of any use."""
    if gleu > unchanged:
        return ()
    return (
        f"on these sentences it corrects no better than leaving them as they are (GLEU {gleu:.2f} against "
        f"{unchanged:.2f}): being no worse than another model says little then",
    )


def _gates(
    ours: Scored, theirs: Scored, agreement: dict[str, Figure], options: Options
) -> tuple[tuple[Gate, ...], tuple[str, ...]]:
    notes = []
    gates = []
    for name, margin in {**DEFAULT_MARGINS, **options.margins}.items():
        loss = _loss(name, ours, theirs, agreement)
        asked_for = name in options.margins
        if loss is None:
            notes.append(f"{name} was not judged: there is nothing to measure it on")
        elif name == "over_correction" and loss.sentences < LEAST_TO_PASS and not asked_for:
            notes.append(
                f"over_correction was not judged: {loss.sentences} sentences need no correction, expected "
                f"{LEAST_TO_PASS} or more; --clean FILE brings some"
            )
        else:
            gates.append(judge(name, loss, margin))
    return tuple(gates), tuple(notes)


def _loss(name: str, ours: Scored, theirs: Scored, agreement: dict[str, Figure]) -> Loss | None:
    if name == "over_correction":
        return rise_of(ours.clean_changed, theirs.clean_changed) if len(ours.clean_changed) else None
    if name == "agreement":
        return distance_of(agreement["agreement"])
    if name == "latency":
        mine, other = ours.figures.get("p50_ms"), theirs.figures.get("p50_ms")
        return slowdown_of(mine, other) if mine and other else None
    return loss_of(ours.figures[name].minus(theirs.figures[name]), 1.0 if name == "gleu" else 100.0)


def _metrics(ours: Scored, theirs: Scored | None) -> dict[str, Metric]:
    return {
        name: Metric(
            sentences=figure.sentences,
            candidate=_estimate(figure),
            reference=_estimate(theirs.figures[name]) if theirs else None,
            difference=_estimate(figure.minus(theirs.figures[name])) if theirs else None,
        )
        for name, figure in ours.figures.items()
    }


def _estimate(figure: Figure) -> Estimate:
    return Estimate(figure.value, *interval(figure.resampled))


def _types(ours: Scored, theirs: Scored | None) -> tuple[TypeRow, ...]:
    others = theirs.edits.types if theirs else {}
    nothing = EditScore(0, 0, 0)
    names = sorted({*ours.edits.types, *others})
    rows = [
        TypeRow(
            type=name,
            candidate=_edit_figures(ours.edits.types.get(name, nothing)),
            reference=_edit_figures(others.get(name, nothing)) if theirs else None,
        )
        for name in names
    ]
    return tuple(sorted(rows, key=lambda row: -(row.candidate.right + row.candidate.missed)))


def _edit_figures(score: EditScore) -> EditFigures:
    return EditFigures(
        right=score.true_positives,
        wrong=score.false_positives,
        missed=score.false_negatives,
        precision=score.precision,
        recall=score.recall,
        f_half=score.f_half,
    )


def _told(side: _Side) -> Told:
    outcomes = Counter(side.heard.outcomes.values())
    return Told(
        name=side.subject.name,
        facts=side.subject.facts,
        changed=sum(text != answer for text, answer in side.heard.texts.items()),
        kept={name: count for name, count in sorted(outcomes.items()) if name != _CORRECTED},
        rate=side.heard.rate,
    )


def _counts(scorer: Scorer, ours: _Side, theirs: _Side | None) -> Counts:
    examples = scorer.corpus.examples
    differing = [text for text in scorer.asked if theirs and ours.heard.texts[text] != theirs.heard.texts[text]]
    return Counts(
        sentences=len(examples),
        references=sum(len(example.references) for example in examples),
        clean=len(scorer.clean),
        differing=len(differing) if theirs else None,
        one_at_a_time=len(ours.heard.alone_ms),
    )


def _changes(scorer: Scorer, ours: _Side, theirs: _Side | None) -> tuple[Change, ...]:
    """The sentences with another answer than the reference model's, or than no change; most harmful first."""
    examples = scorer.corpus.examples
    before = theirs.scored.answers if theirs else tuple(scorer.lines)
    ngrams = theirs.scored.ngrams if theirs else scorer.count_unchanged()
    effects = ours.scored.ngrams.effects(ngrams)
    found = [
        _change(example.source, example.references, old, new, float(effect))
        for example, old, new, effect in zip(examples, before, ours.scored.answers, effects, strict=True)
        if old != new
    ]
    for text in dict.fromkeys(scorer.corpus.clean):
        old, new = theirs.heard.texts[text] if theirs else text, ours.heard.texts[text]
        if old != new:
            found.append(_change(text, (text,), old, new, None))
    return tuple(sorted(found, key=lambda change: change.effect or 0.0))


def _change(source: str, references: tuple[str, ...], before: str, after: str, effect: float | None) -> Change:
    types = {edit.type for edit in OwnAnnotator().edits(before, [after])[0]}
    return Change(
        source=source,
        references=references,
        before=before,
        after=after,
        effect=effect,
        types=tuple(sorted(types)),
    )
