"""Errors that need no grammar: spelling, commas, capitals, spaces, words left out, put in or swapped.

Each takes a sentence and a source of randomness, and returns whether it changed something.
"""

from __future__ import annotations

import random

from recipe import lexicon
from recipe.sentence import Sentence, Word, keep_capital
from recipe.spelling import Typos, misspell

_NAMES = ("NNP", "NNPS")


def spell(words: Sentence, rng: random.Random, typos: Typos) -> bool:
    """Misspell a word, as people are known to or at random."""
    i = words.pick(rng, lambda _, word: word.text.isalpha() and len(word.text) > 2 and word.tag not in _NAMES)
    if i is None:
        return False
    text = words[i].low
    known = typos.get(text)
    if known and rng.random() < 0.55:
        return words.substitute(i, rng.choice(known))
    if len(text) == 3 and rng.random() < 0.8:  # what is left could be many words
        return False
    for _ in range(1 if rng.random() < 0.85 else 2):
        text = misspell(text, rng)
    return words.substitute(i, text)


def punctuation(words: Sentence, rng: random.Random) -> bool:
    """Lose or add a comma, lose or change the final mark, or lose an apostrophe."""
    kind = rng.random()
    if kind < 0.5:
        return _lose_comma(words, rng)
    if kind < 0.72:
        return _add_comma(words, rng)
    if kind < 0.92 and words and words[-1].text in ".?!":
        return _final_mark(words, rng)
    i = words.pick(rng, lambda _, word: "'" in word.text and word.tag in ("POS", "VBZ", "VBP", "RB", "MD"))
    if i is None:
        return False
    words[i].text, words[i].touched = words[i].text.replace("'", ""), True
    return True


def _lose_comma(words: Sentence, rng: random.Random) -> bool:
    i = words.pick(rng, lambda i, word: word.text == "," and 0 < i < len(words) - 1)
    if i is None:
        return False
    words[i - 1].space, words[i - 1].touched = " ", True
    words.pop(i)
    return True


def clause_comma(words: Sentence, rng: random.Random) -> bool:
    """Lose the comma after what a sentence opens with, or the one before another clause; or lose them all."""
    before = ("but", "and", "so", "or", "which", "who", "where", "because", "although")

    def fits(i: int, word: Word) -> bool:
        if word.text != "," or not 0 < i < len(words) - 1:
            return False
        return i < 9 or words[i + 1].low in before

    i = words.pick(rng, fits)
    if i is None:
        return False
    every = [j for j in range(1, len(words) - 1) if words[j].text == ","] if rng.random() < 0.25 else [i]
    for j in reversed(every):
        words[j - 1].space, words[j - 1].touched = " ", True
        words.pop(j)
    return True


def _add_comma(words: Sentence, rng: random.Random) -> bool:
    tags = ("IN", "CC", "VBZ", "VBP", "WDT", "RB", "TO")
    i = words.pick(
        rng, lambda i, word: 1 < i < len(words) - 2 and word.tag in tags and words[i - 1].text.isalpha()
    )
    if i is None:
        return False
    words[i - 1].space = ""
    words.insert(i, Word(",", " ", ",", touched=True))
    return True


def _final_mark(words: Sentence, rng: random.Random) -> bool:
    if words[-1].text == "?" and rng.random() < 0.6:
        words[-1].text = "."
        return True
    words.pop()
    words[-1].space = ""
    return True


def capitals(words: Sentence, rng: random.Random) -> bool:
    """Lose the capital of the sentence or of a name, or give one to a plain word."""
    kind = rng.random()
    if kind < 0.55:
        first = words[0]
        if not first.text[:1].isupper():
            return False
        first.text = first.text[:1].lower() + first.text[1:]
        return True
    if kind < 0.85:
        i = words.pick(rng, _is_name)
        change = str.lower
    else:
        i = words.pick(rng, lambda i, word: i and word.tag in ("NN", "NNS", "JJ") and word.text.islower())
        change = str.capitalize
    if i is None:
        return False
    words[i].text, words[i].touched = change(words[i].text), True
    return True


def _is_name(i: int, word: Word) -> bool:
    named = i > 0 and word.tag in _NAMES and word.text[0].isupper()
    return named or word.text in ("I", "English", "American")


def order(words: Sentence, rng: random.Random) -> bool:
    """Swap two neighbours."""
    swapped = {tuple(entry.split()) for entry in lexicon.tables()["swapped"]}

    def fits(i: int, word: Word) -> bool:
        if not 0 < i < len(words) - 2:
            return False
        follower = words[i + 1]
        if follower.touched or not (word.text.isalpha() and follower.text.isalpha() and word.space):
            return False
        return (word.tag, follower.tag) in swapped

    i = words.pick(rng, fits)
    if i is None:
        return False
    first, second = words[i], words[i + 1]
    first.text, second.text, first.tag, second.tag = second.text, first.text, second.tag, first.tag
    first.touched = second.touched = True
    return True


def missing(words: Sentence, rng: random.Random) -> bool:
    """Leave a small word out, one that can be told from the others."""
    small = lexicon.tables()["omitted"]

    def fits(i: int, word: Word) -> bool:
        return 0 < i < len(words) - 1 and word.low in small

    i = words.pick(rng, fits)
    return i is not None and words.drop(i)


def extra(words: Sentence, rng: random.Random) -> bool:
    """Put a word in, or write one twice."""
    i = words.pick(rng, lambda i, word: 0 < i < len(words) and word.text.isalpha())
    if i is None:
        return False
    before, tag = words[i - 1].tag, words[i].tag
    if rng.random() < 0.25:
        return words.put(i, words[i].text)
    if tag in ("VB", "VBP", "VBZ", "VBD"):
        return words.put(i, rng.choice(["is", "are", "to", "can", "will", "was", "they", "it"]))
    if tag in ("JJ", "RB"):
        return words.put(i, rng.choice(["more", "a", "the", "is", "much", "be"]))
    if before in ("NN", "NNS"):
        return words.put(i, rng.choice(["that", "is", "which", "of", "it", "they", "are", "and"]))
    return words.put(i, rng.choice(["the", "that", "a", "of", "and", "also", "for", "to"]))


def space(words: Sentence, rng: random.Random) -> bool:
    """Write two words as one or one as two, or misplace the space at a comma or the final mark."""
    if _join_pair(words, rng):
        return True
    split = lexicon.replacements("split")
    i = words.pick(rng, lambda _, word: word.low in split)
    if i is not None and rng.random() < 0.5:
        return words.substitute(i, split[words[i].low])
    i = words.pick(rng, lambda i, word: word.text == "," and 0 < i < len(words) - 1)
    if i is not None and rng.random() < 0.7:
        before, after = rng.choice([(" ", " "), ("", ""), (" ", "")])
        words[i - 1].space, words[i].space, words[i].touched = before, after, True
        return True
    if words[-1].text in ".?!":
        words[-2].space = " "
        return True
    return False


def _join_pair(words: Sentence, rng: random.Random) -> bool:
    joined = lexicon.pairs("joined")
    for apart, together in rng.sample(joined, len(joined)):
        first, second = apart.split()
        for i in range(len(words) - 1):
            if words[i].low == first and words[i + 1].low == second and not words[i].touched:
                words[i].text, words[i].touched = keep_capital(words[i].text, together), True
                words[i].space = words[i + 1].space
                words.pop(i + 1)
                return True
    return False
