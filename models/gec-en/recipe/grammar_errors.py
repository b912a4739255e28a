"""Errors of grammar and of word choice, placed by part of speech.

Each takes a sentence and a source of randomness, and returns whether it changed something. Inflection is
lemminflect's.
"""

from __future__ import annotations

import random

from lemminflect import getInflection, getLemma

from recipe import lexicon
from recipe.sentence import Sentence, Word, keep_capital

_VERBS = {"VB", "VBP", "VBZ", "VBD", "VBG", "VBN"}
_NOUNS = {"NN", "NNS"}
_BE = {"be", "am", "is", "are", "was", "were"}
_TENSES = ({"VBD", "VBZ"}, {"VBD", "VBP"})
"""Another tense is an error only where other verbs show which it should be."""
_ARTICLES = ("the", "a", "an")
_SINGULAR = ("a", "an", "this", "that", "one", "each", "every", "another", "much")
_PLURAL = (
    "many", "these", "those", "few", "several", "two", "three", "four", "five", "ten", "all", "some", "of", "most",
    "other", "various", "different", "both",
)  # fmt: skip


def verb(words: Sentence, rng: random.Random) -> bool:
    """Another form of a verb, an irregular one made regular, or an auxiliary too many ("he is go")."""
    i = words.pick(rng, lambda _, word: word.tag in _VERBS and word.text.isalpha() and word.low not in _BE)
    if i is None:
        return False
    low = words[i].low
    regularised = lexicon.replacements("regularised")
    if low in regularised and rng.random() < 0.25:
        return words.substitute(i, regularised[low])
    tag = rng.choice(lexicon.choices("verb_forms")[words[i].tag])
    if {tag, words[i].tag} in _TENSES and not any(word.tag == words[i].tag for word in words[:i] + words[i + 1 :]):
        return False
    lemma = _lemma(low, "VERB")
    if lemma is None:
        return False
    if tag == "TO":
        return words.substitute(i, "to " + lemma)
    form = _inflected(lemma, tag)
    if form is None:
        return False
    if rng.random() < 0.12 and tag in ("VB", "VBG"):
        return words.substitute(i, rng.choice(["is ", "are ", "was "]) + form)
    return words.substitute(i, form)


def agreement(words: Sentence, rng: random.Random) -> bool:
    """A verb that does not agree with its subject."""
    disagreements = lexicon.choices("disagreements")

    def fits(_: int, word: Word) -> bool:
        finite = word.tag in ("VBZ", "VBP", "VBD") and (word.low in disagreements or word.tag != "VBD")
        return finite and word.text[0] != "'"

    i = words.pick(rng, fits)
    if i is None:
        return False
    low = words[i].low
    if disagreements.get(low):
        return words.substitute(i, rng.choice(disagreements[low]))
    lemma = _lemma(low, "VERB")
    form = lemma and _inflected(lemma, "VBP" if words[i].tag == "VBZ" else "VBZ")
    return bool(form) and words.substitute(i, form)


def modal(words: Sentence, rng: random.Random) -> bool:
    """Another form, or "to", after a modal or "to"."""
    i = words.pick(
        rng,
        lambda i, word: word.tag == "VB" and i > 0 and words[i - 1].tag in ("MD", "TO") and word.text.isalpha(),
    )
    if i is None:
        return False
    if words[i - 1].tag == "MD" and rng.random() < 0.4:
        return words.put(i, "to")
    if words[i].low == "be":
        return words.substitute(i, rng.choice(["is", "been", "are", "being"]))
    form = _inflected(words[i].low, rng.choice(["VBZ", "VBD", "VBG", "VBG"]))
    return bool(form) and words.substitute(i, form)


def number(words: Sentence, rng: random.Random) -> bool:
    """Singular for plural or plural for singular."""
    i = words.pick(rng, lambda _, word: word.tag in _NOUNS and word.text.isalpha() and len(word.text) > 2)
    if i is None or not (_tells_number(words, i) or rng.random() < 0.25):
        return False
    low = words[i].low
    if words[i].tag == "NNS":
        lemma = _lemma(low, "NOUN")
        return bool(lemma) and words.substitute(i, lemma)
    plural = _inflected(low, "NNS")
    if plural is None:
        return False
    if rng.random() < 0.05:
        return words.substitute(i, low + "'s")
    return words.substitute(i, plural)


def _tells_number(words: Sentence, i: int) -> bool:
    """Whether a neighbour shows what number the noun should have: otherwise both are right as often as not."""
    before, after = words[i - 1] if i else None, words[i + 1] if i + 1 < len(words) else None
    if words[i].tag == "NN":
        return (before is not None and before.low in _SINGULAR) or (after is not None and after.tag == "VBZ")
    bare = before is None or before.tag in ("IN", "VB", "VBP", "VBZ", "VBD", "VBG", "CC", "TO", ",")
    return bare or (after is not None and after.tag == "VBP") or (before is not None and before.low in _PLURAL)


def determiner(words: Sentence, rng: random.Random) -> bool:
    """An article left out, put in, or taken for another determiner."""
    kind = rng.random()
    if kind < 0.58:
        i = words.pick(rng, lambda i, word: word.low in _ARTICLES and i + 1 < len(words))
        needless = i is not None and words[i].low == "the" and _noun_tag(words, i + 1) != "NN"
        return i is not None and (not needless or rng.random() < 0.4) and words.drop(i)
    if kind < 0.82:
        return _add_article(words, rng)
    determiners = lexicon.choices("determiners")
    i = words.pick(rng, lambda _, word: word.low in determiners and word.tag in ("DT", "PRP$"))
    return i is not None and words.substitute(i, rng.choice(determiners[words[i].low]))


def _add_article(words: Sentence, rng: random.Random) -> bool:
    before = ("IN", "VB", "VBP", "VBZ", "VBD", "VBG", "CC", "TO", ",")

    def fits(i: int, word: Word) -> bool:
        bare = i == 0 or words[i - 1].tag in before
        return word.tag in ("NN", "NNS", "JJ") and bare and word.text.isalpha()

    i = words.pick(rng, fits)
    if i is None:
        return False
    if rng.random() < 0.55:
        return words.put(i, "the")
    return words.put(i, "an" if words[i].low[0] in "aeiou" else "a")


def _noun_tag(words: Sentence, start: int) -> str:
    """The tag of the noun that an article before `start` belongs to."""
    return next((word.tag for word in words[start : start + 4] if word.tag.startswith("NN")), "")


def preposition(words: Sentence, rng: random.Random) -> bool:
    """A preposition taken for another, left out, or put in."""
    kind = rng.random()
    near = lexicon.choices("near_prepositions")
    if kind < 0.6:
        i = words.pick(rng, lambda i, word: word.low in near and _is_preposition(words, i))
        return i is not None and words.substitute(i, rng.choice(near[words[i].low]))
    if kind < 0.83:
        droppable = lexicon.tables()["prepositions"]
        tags = ("IN", "TO", "RP")
        i = words.pick(rng, lambda i, word: 0 < i < len(words) - 1 and word.tag in tags and word.low in droppable)
        return i is not None and words.drop(i)
    i = words.pick(rng, lambda i, _: i > 0 and _takes_a_preposition(words[i - 1], words[i]))
    return i is not None and words.put(i, rng.choice(["to", "of", "for", "about", "in", "with", "at", "on"]))


def _is_preposition(words: Sentence, i: int) -> bool:
    infinitive = words[i].low == "to" and i + 1 < len(words) and words[i + 1].tag == "VB"
    return words[i].tag in ("IN", "TO", "RP") and not infinitive


def _takes_a_preposition(before: Word, word: Word) -> bool:
    an_object = before.tag in _VERBS and word.tag in ("DT", "PRP", "PRP$", "NNS", "NN")
    return an_object or word.low in ("home", "abroad", "here", "there", "every", "last", "next")


def pronoun(words: Sentence, rng: random.Random) -> bool:
    """A pronoun in another case, or for another person."""
    pronouns = lexicon.choices("pronouns")
    i = words.pick(
        rng,
        lambda i, word: (
            word.low in pronouns
            and word.tag[:2] in ("PR", "WP", "WD")
            and (word.space or i + 1 == len(words) or not words[i + 1].text.startswith("'"))
        ),
    )
    return i is not None and words.substitute(i, rng.choice(pronouns[words[i].low]))


def conjunction(words: Sentence, rng: random.Random) -> bool:
    """A conjunction taken for another."""
    conjunctions = lexicon.choices("conjunctions")
    i = words.pick(rng, lambda _, word: word.low in conjunctions and word.tag in ("CC", "IN", "WRB"))
    return i is not None and words.substitute(i, rng.choice(conjunctions[words[i].low]))


def confusion(words: Sentence, rng: random.Random) -> bool:
    """A word that sounds or looks like another."""
    return _replace(words, rng, lexicon.confusable())


def wrong_word(words: Sentence, rng: random.Random) -> bool:
    """A word of like meaning that does not belong here."""
    return _replace(words, rng, lexicon.choices("wrong_words"))


def _replace(words: Sentence, rng: random.Random, choices: lexicon.Choices) -> bool:
    i = words.pick(rng, lambda _, word: word.low in choices)
    return i is not None and words.substitute(i, rng.choice(choices[words[i].low]))


def contraction(words: Sentence, rng: random.Random) -> bool:
    """A contraction taken for a word that sounds like it, or written without its apostrophe."""
    wrong = lexicon.choices("contractions")
    places = [
        i
        for i in range(len(words) - 1)
        if not words[i].space and not words[i].touched and words[i].low + words[i + 1].low in wrong
    ]
    if not places:
        return False
    i = rng.choice(places)
    first, second = words[i], words[i + 1]
    first.text = keep_capital(first.text, rng.choice(wrong[first.low + second.low]))
    first.space, first.touched = second.space, True
    words.pop(i + 1)
    return True


def phrase(words: Sentence, rng: random.Random) -> bool:
    """A set phrase said wrong ("in the other hand")."""
    wrong = lexicon.choices("phrases")
    found = [
        (start, start + length)
        for length in (4, 3, 2)
        for start in range(len(words) - length + 1)
        if not any(word.touched for word in words[start : start + length])
        and " ".join(word.low for word in words[start : start + length]) in wrong
    ]
    if not found:
        return False
    start, end = rng.choice(found)
    first, last = words[start], words[end - 1]
    if any(not word.space for word in words[start : end - 1]):
        return False
    right = " ".join(word.low for word in words[start:end])
    first.text, first.space = keep_capital(first.text, rng.choice(wrong[right])), last.space
    first.touched = True
    del words[start + 1 : end]
    return True


def word_form(words: Sentence, rng: random.Random) -> bool:
    """The noun for the adjective, the adjective for the adverb, and so on."""
    families = lexicon.families()
    i = words.pick(rng, lambda _, word: word.low in families or (word.tag in ("RB", "JJ") and len(word.text) > 3))
    if i is None:
        return False
    low, tag = words[i].low, words[i].tag
    if low in families:
        return words.substitute(i, rng.choice(families[low]))
    if tag == "RB" and low.endswith("ly") and len(low) > 5:
        return words.substitute(i, low[:-3] + "y" if low.endswith("ily") else low[:-2])
    if tag == "JJ" and len(low) > 4 and low[-1] not in "ydg":
        return words.substitute(i, _adverb(low))
    return False


def _adverb(adjective: str) -> str:
    if adjective.endswith("le"):
        return adjective[:-1] + "y"
    return adjective + ("ally" if adjective.endswith("ic") else "ly")


def comparison(words: Sentence, rng: random.Random) -> bool:
    """Comparing twice, not at all, or in the wrong degree."""
    own = ("more", "less", "most", "least", "fewer")
    i = words.pick(rng, lambda _, word: word.tag in ("JJR", "RBR", "JJS") and word.low not in own)
    if i is None:
        return _wrong_degree(words, rng)
    low = words[i].low
    base = _lemma(low, "ADJ") or low
    degree = "most" if words[i].tag == "JJS" else "more"
    return words.substitute(i, rng.choice([f"{degree} {low}", f"{degree} {base}", base]))


def _wrong_degree(words: Sentence, rng: random.Random) -> bool:
    i = words.pick(rng, lambda _, word: word.tag in ("JJR", "RBR", "RBS", "JJS"))
    if i is None:
        return False
    for_more = rng.choice(["most", "much"])
    return words.substitute(
        i, {"more": for_more, "most": "more", "less": "least", "least": "less"}.get(words[i].low)
    )


def _lemma(word: str, part_of_speech: str) -> str | None:
    found: tuple[str, ...] = getLemma(word, upos=part_of_speech)
    return found[0] if found else None


def _inflected(lemma: str, tag: str) -> str | None:
    found: tuple[str, ...] = getInflection(lemma, tag=tag)
    return found[0] if found else None
