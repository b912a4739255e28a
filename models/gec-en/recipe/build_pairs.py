"""`tagged.jsonl`, corrupted, and the real pairs of Harper's tests: `pairs.jsonl`."""

from __future__ import annotations

import argparse
import ast
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

from recipe import sources
from recipe.corrupt import Corruptor
from recipe.pairs import Pair, write_pairs
from recipe.sources import Snapshot
from recipe.spelling import read_typos

_STRING = r'"((?:[^"\\]|\\.)*)"'
_RUST_TEST = re.compile(rf"assert_suggestion_result\(\s*{_STRING}\s*,[^\"]*?,\s*{_STRING}\s*,?\s*\)")
_WEIR_TEST = re.compile(rf"^test\s+{_STRING}\s+{_STRING}", re.MULTILINE)
_BAD = re.compile(r"[`<>{}\[\]=_#@|\\/:;]|https?")


def harper_pairs(harper: Snapshot) -> Iterator[Pair]:
    """Wrong and right out of the tests of Harper's rules, whole sentences of 4 to 32 words only."""
    found = _RUST_TEST.findall(harper.grep("assert_suggestion_result(", "*.rs", after=8))
    found += _WEIR_TEST.findall(harper.grep("^test ", "*.weir"))
    seen = set()
    for literals in found:
        try:
            wrong, right = (_unquote(literal) for literal in literals)
        except (SyntaxError, ValueError):
            continue
        if wrong != right and wrong not in seen and _is_sentence(right):
            seen.add(wrong)
            yield Pair(wrong, right, "harper")


def _unquote(literal: str) -> str:
    return re.sub(r"\s+", " ", ast.literal_eval(f'"{literal}"')).strip()


def _is_sentence(text: str) -> bool:
    """Most of those without a final mark have further errors in what should be right."""
    if not 4 <= len(text.split()) <= 32 or _BAD.search(text) or not text.isascii():
        return False
    return re.match(r"[A-Z\"]", text) is not None and re.search(r"[.!?]\"?$", text) is not None


def corrupted_pairs(tagged: Path, corruptor: Corruptor, rng: random.Random, keep: float) -> Iterator[Pair]:
    """Each tagged sentence with errors put in; some with typographic quotes on both sides, to be copied."""
    for line in tagged.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        target = "".join(text + space for text, space, _ in row["t"]).strip()
        source = corruptor.corrupt(row["t"], rng, keep)
        if rng.random() < 0.06:
            source, target = (re.sub(r"(?<=\w)'", "\u2019", text) for text in (source, target))
        yield Pair(source, target, row["o"])


def main() -> None:
    """Build, shuffle and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    sources.add_mirror_argument(parser)
    parser.add_argument("--tagged", type=Path, default=Path("tagged.jsonl"))
    parser.add_argument("--out", type=Path, default=Path("pairs.jsonl"))
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--keep", type=float, default=0.12, help="share of sentences that get no error")
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    dictionary = Snapshot(arguments.mirror, *sources.TYPOS).read("crates/typos-dict/assets/words.csv")
    corruptor = Corruptor(read_typos(dictionary.split("\n")))
    pairs = list(corrupted_pairs(arguments.tagged, corruptor, rng, arguments.keep))
    pairs += harper_pairs(Snapshot(arguments.mirror, *sources.HARPER))
    rng.shuffle(pairs)
    write_pairs(arguments.out, pairs)
    unchanged = sum(pair.unchanged for pair in pairs)
    real = sum(pair.origin == "harper" for pair in pairs)
    print(f"{len(pairs)} pairs; {unchanged} unchanged; {real} from harper")


if __name__ == "__main__":
    main()
