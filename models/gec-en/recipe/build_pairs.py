"""`tagged.jsonl`, corrupted, and the real pairs of Harper's tests: `pairs.jsonl`."""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import random
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from recipe import lexicon, sources
from recipe.corrupt import SHORT, Corruptor
from recipe.garble import garble
from recipe.informal import informal, informal_pairs, phrases
from recipe.pairs import Pair, write_pairs
from recipe.sentence import Tagged
from recipe.sources import Snapshot
from recipe.spelling import Typos, read_typos

_STRING = r'"((?:[^"\\]|\\.)*)"'
_RUST_TEST = re.compile(rf"assert_suggestion_result\(\s*{_STRING}\s*,[^\"]*?,\s*{_STRING}\s*,?\s*\)")
_WEIR_TEST = re.compile(rf"^test\s+{_STRING}\s+{_STRING}", re.MULTILINE)
_LOWERED = {
    "The", "A", "An", "It", "He", "She", "They", "We", "You", "This", "That", "These", "There", "My", "His", "Her",
    "In", "If", "But", "And", "So", "Then", "What", "When", "As", "Our", "Their", "Some", "Many", "Most", "People",
}  # fmt: skip
_OURS = ("everyday", "set-phrase")
_REPEATED = {"set-phrase": 8}
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


@dataclass(frozen=True)
class Tags:
    """A line of `tagged.jsonl`."""

    origin: str
    tokens: list[Tagged]


def read_tags(path: Path) -> list[Tags]:
    """Every line."""
    rows = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return [Tags(row["o"], row["t"]) for row in rows]


def corrupted_pairs(tagged: Iterable[Tags], typos: Typos, rng: random.Random, keep: float) -> Iterator[Pair]:
    """Each tagged sentence with errors put in; some in British spelling or with curly apostrophes."""
    usual, short = Corruptor(typos), Corruptor(typos, SHORT)
    for row in tagged:
        for _ in range(_REPEATED.get(row.origin, 1)):
            tokens = [_british(token) for token in row.tokens] if rng.random() < 0.3 else row.tokens
            target = "".join(text + space for text, space, _ in tokens).strip()
            ours = row.origin in _OURS or (len(tokens) < 9 and rng.random() < 0.5)
            source = (short if ours else usual).corrupt(tokens, rng, keep)
            if rng.random() < 0.06:
                source, target = (re.sub(r"(?<=\w)'", "\u2019", text) for text in (source, target))
            yield Pair(source, target, row.origin)


def _british(token: Tagged) -> Tagged:
    text, space, tag = token
    return lexicon.replacements("british").get(text, text), space, tag


def run_on_pairs(pairs: Sequence[Pair], rng: random.Random) -> Iterator[Pair]:
    """Two short sentences written as one, or without the space between."""
    short = [pair for pair in pairs if pair.target.endswith(".") and len(pair.source.split()) < 13]
    for first, second in itertools.pairwise(short):
        if not first.source.endswith(".") or first.origin != second.origin or second.source[:1] in "\"'(":
            continue
        source, start = first.source.removesuffix("."), second.source
        if start.split()[0] in _LOWERED:
            start = start[:1].lower() + start[1:]
        joint = rng.choice([", ", ", ", " ", ".", ". "])
        yield Pair(source + joint + start, f"{first.target} {second.target}", "run-on")


def garbled_pairs(pairs: Sequence[Pair], rng: random.Random) -> Iterator[Pair]:
    """Hopeless text, to be copied."""
    for pair in pairs:
        text = garble(pair.target, rng)
        yield Pair(text, text, "garbled")


def unchanged_pairs(sentences: Path, seen: Collection[str]) -> Iterator[Pair]:
    """Clean sentences that no pair has an error put into."""
    for line in sentences.read_text(encoding="utf-8").splitlines():
        origin, text = line.split("\t")
        if text not in seen and len(text.split()) <= 32:
            yield Pair(text, text, origin)


def main() -> None:
    """Build, shuffle and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    sources.add_mirror_argument(parser)
    parser.add_argument("--tagged", type=Path, default=Path("tagged.jsonl"))
    parser.add_argument("--out", type=Path, default=Path("pairs.jsonl"))
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--keep", type=float, default=0.08, help="share of sentences that get no error")
    parser.add_argument("--sentences", type=Path, default=Path("sentences.tsv"), help="for unchanged pairs")
    parser.add_argument("--unchanged", type=float, default=0.35, help="share of pairs with nothing to correct")
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    dictionary = Snapshot(arguments.mirror, *sources.TYPOS).read("crates/typos-dict/assets/words.csv")
    tagged = read_tags(arguments.tagged)
    pairs = list(corrupted_pairs(tagged, read_typos(dictionary.split("\n")), rng, arguments.keep))
    rng.shuffle(pairs)
    seen = {pair.target for pair in pairs}
    unchanged = list(unchanged_pairs(arguments.sentences, seen))
    rng.shuffle(unchanged)
    run_on = list(run_on_pairs(pairs, rng))[: len(pairs) // 50]
    garbled = list(garbled_pairs(pairs[: len(pairs) // 12], rng))
    unchanged += [Pair(pair.target, pair.target, pair.origin) for pair in pairs if not pair.unchanged]
    hasty = [pair for pair in unchanged if len(pair.source.split()) <= 10][: len(pairs) // 30]
    pairs = list(informal_pairs(pairs, rng))
    pairs += [pair for pair in (informal(pair, rng) for pair in hasty) if pair is not None]
    pairs += [pair for row in rng.sample(tagged, len(tagged) // 20) for pair in phrases(row.tokens, rng)][:2000]
    pairs += run_on + garbled + list(harper_pairs(Snapshot(arguments.mirror, *sources.HARPER)))
    pairs += unchanged[: _missing(pairs, arguments.unchanged)]
    rng.shuffle(pairs)
    write_pairs(arguments.out, pairs)
    print(f"{len(pairs)} pairs; {sum(pair.unchanged for pair in pairs)} unchanged")
    print(Counter(pair.origin for pair in pairs))


def _missing(pairs: Sequence[Pair], share: float) -> int:
    """How many unchanged pairs to add for them to be that share of all."""
    changed = sum(not pair.unchanged for pair in pairs)
    return max(0, round(changed * share / (1 - share)) - (len(pairs) - changed))


if __name__ == "__main__":
    main()
