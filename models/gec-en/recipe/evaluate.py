"""Correct a file, one sentence a line, as Copydesk would, and score the result.

Without references it tells how much was changed: for clean text, how often the model corrects what is right. With
references (files parallel to the source) it adds GLEU. `--tokenised` is for JFLEG, whose lines are Penn Treebank
tokens: they are joined for the model and cut again for the score; an answer equal to the text is scored as the
original line. JFLEG is CC BY-NC-SA: for evaluation only, and not part of this project.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from copydesk.inference.correction import Corrector, EncodedSentence
from copydesk.inference.engine import Finish, GeneratedTokens
from copydesk.text.metrics import gleu
from copydesk.text.treebank import to_plain, to_tokens


@torch.inference_mode()
def generate(model: Any, sentences: Sequence[EncodedSentence], stop_ids: Sequence[int]) -> list[GeneratedTokens]:
    """Greedy answers to a batch of sentences, padded on the left."""
    longest = max(len(sentence.prompt) for sentence in sentences)
    pads = [longest - len(sentence.prompt) for sentence in sentences]
    rows = [[0] * pad + sentence.prompt for pad, sentence in zip(pads, sentences, strict=True)]
    masks = [[0] * pad + [1] * (longest - pad) for pad in pads]
    output = model.generate(
        input_ids=torch.tensor(rows),
        attention_mask=torch.tensor(masks),
        max_new_tokens=max(sentence.max_tokens for sentence in sentences),
        do_sample=False,
        eos_token_id=list(stop_ids),
        pad_token_id=stop_ids[0],
    )
    answers = [row[longest : longest + s.max_tokens] for row, s in zip(output.tolist(), sentences, strict=True)]
    return [_answer(tokens, stop_ids, sentence) for tokens, sentence in zip(answers, sentences, strict=True)]


def _answer(tokens: list[int], stop_ids: Sequence[int], sentence: EncodedSentence) -> GeneratedTokens:
    end = next((place for place, token in enumerate(tokens) if token in stop_ids), None)
    finish = Finish.LENGTH if end is None else Finish.STOP
    used = len(tokens) if end is None else end + 1
    return GeneratedTokens(tokens[:end], finish, len(sentence.prompt), used)


def correct(model: Any, corrector: Corrector, texts: Sequence[str], batch_size: int) -> list[str]:
    """Correct sentences, those of like length together."""
    sentences = [corrector.encode(text) for text in texts]
    order = sorted(range(len(texts)), key=lambda index: len(sentences[index].prompt))
    corrected = list(texts)
    for start in range(0, len(order), batch_size):
        batch = order[start : start + batch_size]
        answers = generate(model, [sentences[index] for index in batch], corrector.stop_ids)
        for index, answer in zip(batch, answers, strict=True):
            corrected[index] = corrector.decode(sentences[index], answer).text
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
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument(
        "--hypotheses", type=Path, help="where to write the corrected lines, tokenised like the source"
    )
    return parser.parse_args()


def main() -> None:
    """Correct and score."""
    options = _options()
    lines = read_lines(options.source, options.offset, options.limit)
    texts = [to_plain(line) for line in lines] if options.tokenised else lines
    model: Any = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.bfloat16)
    corrected = correct(model.eval(), Corrector.load(options.model), texts, options.batch_size)
    answers = tokenise(lines, texts, corrected) if options.tokenised else corrected
    if options.hypotheses:
        options.hypotheses.write_text("\n".join(answers) + "\n", encoding="utf-8")
    changed = sum(answer != text for answer, text in zip(corrected, texts, strict=True))
    result = {"sentences": len(lines), "changed": round(changed / len(lines), 4)}
    if options.references:
        references = [read_lines(path, options.offset, options.limit) for path in options.references]
        result["gleu"] = round(score(lines, answers, references), 2)
        result["gleu_unchanged"] = round(score(lines, lines, references), 2)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
