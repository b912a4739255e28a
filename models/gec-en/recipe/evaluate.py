"""Correct a file, one sentence a line, as Copydesk would, and score the result.

Without references it tells how much was changed: for clean text, how often the model corrects what is right. With
references (files parallel to the source) it adds GLEU. `--tokenised` is for JFLEG, whose lines are Penn Treebank
tokens: they are joined for the model and cut again for the score; an answer equal to the text is scored as the
original line. JFLEG is CC BY-NC-SA: for evaluation only, and not part of this project.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from copydesk.common.rpc.frames import Priority
from copydesk.common.tasks import CorrectedSentence
from copydesk.inference.correction import Corrector
from copydesk.inference.engine import Engine, GeneratedTokens
from copydesk.inference.engine.native import NativeOptions, Precision, open_engine
from copydesk.text.metrics import gleu
from copydesk.text.treebank import to_plain, to_tokens

_AT_ONCE = 256


def correct(engine: Engine, corrector: Corrector, texts: Sequence[str]) -> list[CorrectedSentence]:
    """Correct sentences, as many at a time as the engine takes; those that do not fit stay as they are."""
    sentences = [corrector.encode(text) for text in texts]
    corrected = [corrector.refuse(sentence) for sentence in sentences]

    def take(index: int, answer: GeneratedTokens) -> None:
        corrected[index] = corrector.decode(sentences[index], answer)

    waiting = [index for index, sentence in enumerate(sentences) if sentence.fits]
    for start in range(0, len(waiting), _AT_ONCE):
        for index in waiting[start : start + _AT_ONCE]:
            request, done = sentences[index].request(), functools.partial(take, index)
            engine.submit(request, deadline=math.inf, priority=Priority.BATCH, on_done=done)
        while engine.step(0.0):
            pass
    return corrected


def tokenise(lines: Sequence[str], texts: Sequence[str], corrected: Sequence[str]) -> list[str]:
    """The answers in tokens; where one equals its text, the line that the text is from."""
    return [
        line if answer == text else to_tokens(answer) or line
        for line, text, answer in zip(lines, texts, corrected, strict=True)
    ]


def score(lines: Sequence[str], tokens: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """GLEU, 0 to 100, of tokenised lines; `references` is a file each."""
    by_sentence = list(zip(*references, strict=True))
    return 100 * gleu(lines, tokens, by_sentence, rng=random.Random(0))


def read_lines(path: Path, offset: int = 0, limit: int | None = None) -> list[str]:
    """Stripped lines, from `offset`, at most `limit`."""
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    return lines[offset:][:limit]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--model", type=Path, required=True, help="a Hugging Face directory, as base_model.py writes it"
    )
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--references", type=Path, nargs="*", default=[])
    parser.add_argument("--tokenised", action="store_true")
    parser.add_argument("--offset", type=int, default=0)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--precision", type=Precision, choices=list(Precision), default=Precision.AUTO)
    parser.add_argument(
        "--hypotheses", type=Path, help="where to write the corrected lines, tokenised like the source"
    )
    return parser.parse_args()


def main() -> None:
    """Correct and score."""
    options = _options()
    lines = read_lines(options.source, options.offset, options.limit)
    texts = [to_plain(line) for line in lines] if options.tokenised else lines
    engine = open_engine(options.model, NativeOptions(precision=options.precision))
    answered = correct(engine, Corrector.load(options.model), texts)
    corrected = [answer.text for answer in answered]
    answers = tokenise(lines, texts, corrected) if options.tokenised else corrected
    if options.hypotheses:
        options.hypotheses.write_text("\n".join(answers) + "\n", encoding="utf-8")
    changed = sum(answer != text for answer, text in zip(corrected, texts, strict=True))
    outcomes = Counter(answer.outcome.value for answer in answered)
    result = {"sentences": len(lines), "changed": round(changed / len(lines), 4), "outcomes": dict(outcomes)}
    if options.references:
        references = [read_lines(path, options.offset, options.limit) for path in options.references]
        result["gleu"] = round(score(lines, answers, references), 2)
        result["gleu_unchanged"] = round(score(lines, lines, references), 2)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
