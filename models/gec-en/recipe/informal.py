"""How people write to each other in haste: no capitals, no final mark, no apostrophes, words cut short.

It becomes a sentence as it should be, capital and final mark included. A few words that are no sentence (an entry
of a list, a heading, what one searches for) stay as they are.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence

from recipe import lexicon
from recipe.pairs import Pair
from recipe.sentence import Tagged, capitalise

_MARK = re.compile(r"[.!?]$")
_APOSTROPHE = re.compile(r"(?<=\w)['\u2019](?=\w)")
_PHRASE_TAGS = ("NN", "NNS", "NNP", "JJ", "CD")


def informal(pair: Pair, rng: random.Random) -> Pair | None:
    """The same pair with its source in haste; None for what has quotation marks or ends in no plain mark."""
    if '"' in pair.source or not _MARK.search(pair.target) or pair.target.endswith("..."):
        return None
    source, target = pair.source, pair.target
    lowered = rng.random() < 0.85
    if lowered:
        source = source.lower() if rng.random() < 0.8 else source[:1].lower() + source[1:]
    if rng.random() < 0.85 or not lowered:
        source, target = _MARK.sub("", source).rstrip(), re.sub("!$", ".", target)
    if rng.random() < 0.5:
        source = _APOSTROPHE.sub("", source)
    if rng.random() < 0.1:
        source = _cut_short(source)
    return Pair(source, target, "informal") if source and source != pair.source else None


def _cut_short(text: str) -> str:
    short = lexicon.replacements("cut_short")
    return " ".join(short.get(word, word) for word in text.split(" "))


def informal_pairs(pairs: Sequence[Pair], rng: random.Random) -> Iterator[Pair]:
    """Pairs as they are or in haste, the short ones more often."""
    for pair in pairs:
        length = len(pair.source.split())
        share = 0.4 if length <= 8 else 0.15 if length <= 14 else 0.05
        hasty = informal(pair, rng) if rng.random() < share else None
        yield hasty or pair


def phrases(tokens: Sequence[Tagged], rng: random.Random) -> Iterator[Pair]:
    """A noun with what is before it, alone and unchanged: in lower case or with a capital, without a mark."""
    run: list[Tagged] = []
    for token in [*tokens, (".", "", ".")]:
        if token[2] in _PHRASE_TAGS and token[0].replace("-", "").isalpha():
            run.append(token)
            continue
        if rng.random() < 0.3 * len(run) and len(run) <= 5 and run[-1][2] in ("NN", "NNS"):
            text = "".join(word + space for word, space, _ in run).strip()
            text = rng.choice([text.lower(), text.lower(), capitalise(text), text.title()])
            yield Pair(text, text, "phrase")
        run = []
