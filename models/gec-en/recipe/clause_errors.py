"""Errors in how clauses are built: questions inside sentences, conditions, tenses, infinitives, doubled subjects.

Each takes a tagged sentence and a source of randomness, and returns whether it changed something.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from lemminflect import getInflection, getLemma

from recipe.sentence import Sentence, Word, capitalise

_ASKING = ("WRB", "WP")
_FINITE_AUXILIARIES = {
    "is", "are", "was", "were", "am", "can", "could", "will", "would", "should", "must", "has", "have", "had",
}  # fmt: skip
_VERBS = ("VB", "VBP", "VBZ", "VBD")
_DO_FOR = {"VBZ": "does", "VBP": "do", "VBD": "did"}
_OF_A_NOUN = ("DT", "PRP$", "JJ", "NN", "NNS", "NNP", "NNPS", "POS")
_GERUND_PREPOSITIONS = (
    "of", "in", "for", "about", "without", "by", "at", "after", "before", "from", "on", "instead",
)  # fmt: skip
_TO_BEFORE_GERUND = ("forward", "used", "opposed", "committed", "dedicated", "addition", "accustomed", "devoted")
_IF = ("if", "when", "unless", "until", "before", "after", "once")
_SUBJECTS = ("PRP", "NN", "NNS", "NNP")
_PAST_TIMES = ("yesterday", "ago", "last")
_BEFORE_GERUND = (
    "enjoy", "avoid", "finish", "mind", "suggest", "consider", "keep", "practice", "imagine", "risk", "like",
)  # fmt: skip
_BEFORE_INFINITIVE = (
    "want", "decide", "hope", "plan", "agree", "refuse", "promise", "ask", "tell", "allow", "expect", "able",
)  # fmt: skip


def embedded_question(words: Sentence, rng: random.Random) -> bool:
    """The order of a question where there is none: "Tell me where is it", "I know what does he want"."""
    found = [
        (start, end)
        for start in range(2, len(words) - 2)
        if words[start].tag in _ASKING
        and not words[start].touched
        and words[start - 1].text.isalpha()
        and (words[start].low != "when" or words[start - 1].tag in _VERBS)
        for end in [_after_noun(words, start + 1)]
        if end is not None
    ]
    if not found:
        return False
    start, end = rng.choice(found)
    verb = words[end]
    if verb.low in _FINITE_AUXILIARIES:
        words.pop(end)
        words[end - 1].space, verb.space, verb.touched = verb.space, " ", True
        words.insert(start + 1, verb)
        return True
    lemma = _lemma(verb.low)
    if verb.tag not in _DO_FOR or lemma is None:
        return False
    auxiliary = _DO_FOR[verb.tag]
    verb.text, verb.touched = (lemma if rng.random() < 0.7 else verb.text), True
    return words.put(start + 1, auxiliary)


def _after_noun(words: Sentence, start: int) -> int | None:
    """The place of the finite verb after a short subject that starts there."""
    end = start
    if words[start].tag == "PRP":
        end = start + 1
    else:
        while end < len(words) and words[end].tag in _OF_A_NOUN and end - start < 4:
            end += 1
    if end == start or end >= len(words) or words[end].touched or not words[end].text.isalpha():
        return None
    return end if words[end].tag in ("VBZ", "VBP", "VBD", "MD") else None


def condition(words: Sentence, rng: random.Random) -> bool:
    """ "Will" or "would" after "if" or "when", or a wrong tense there or in what follows from it."""
    if not any(word.low in _IF for word in words):
        return False
    is_condition = any(word.low in ("if", "unless") for word in words)
    places = [
        i
        for i in range(2, len(words))
        if words[i].tag in _DO_FOR
        and words[i - 1].tag in _SUBJECTS
        and words[i - 2].low in _IF
        and not words[i].touched
    ]
    if places and rng.random() < 0.6:
        i = rng.choice(places)
        return _with_modal(words, i, "will" if words[i].tag != "VBD" else "would")
    swap = {"would": "will", "will": "would", "'ll": "would"}
    at = words.pick(rng, lambda _, word: is_condition and word.low in swap and word.tag == "MD")
    if at is None:
        return False
    if words[at].text.startswith("'"):
        words[at - 1].space = " "
    return words.substitute(at, swap[words[at].low])


def _with_modal(words: Sentence, i: int, modal: str) -> bool:
    lemma = _lemma(words[i].low, "AUX") or _lemma(words[i].low)
    contracted = words[i].space == "" and i + 1 < len(words) and words[i + 1].text[0].isalpha()
    if lemma is None or contracted or not words[i].text.isalpha():
        return False
    words[i].text, words[i].touched = lemma, True
    return words.put(i, modal)


def tense(words: Sentence, rng: random.Random) -> bool:
    """The perfect with a time that is past, the simple present with "since", "did" with a past form."""
    kinds: list[Callable[[Sentence, random.Random], bool]] = [
        _perfect_for_past,
        _present_for_perfect,
        _did_with_past,
    ]
    rng.shuffle(kinds)
    return any(kind(words, rng) for kind in kinds)


def _perfect_for_past(words: Sentence, rng: random.Random) -> bool:
    if not any(word.low in _PAST_TIMES for word in words):
        return False
    i = words.pick(
        rng, lambda i, word: i and word.tag == "VBD" and words[i - 1].tag in _SUBJECTS and word.text.isalpha()
    )
    lemma = None if i is None else _lemma(words[i].low)
    if i is None or lemma in (None, "be", "have", "do"):
        return False
    third = words[i - 1].tag in ("NN", "NNP") or words[i - 1].low in ("he", "she", "it")
    participle = _form(lemma or "", "VBN")
    if participle is None:
        return False
    words[i].text, words[i].touched = participle, True
    return words.put(i, "has" if third else "have")


def _present_for_perfect(words: Sentence, rng: random.Random) -> bool:
    i = words.pick(
        rng, lambda i, word: word.low in ("have", "has") and i + 1 < len(words) and words[i + 1].tag == "VBN"
    )
    if i is None or all(word.low != "since" for word in words[i + 2 :]):
        return False
    lemma = _lemma(words[i + 1].low) or _lemma(words[i + 1].low, "AUX")
    form = lemma and _form(lemma, "VBZ" if words[i].low == "has" else "VBP")
    if not form or lemma == "be":
        return False
    capital = words[i].text[:1].isupper()
    words.pop(i)
    words[i].text, words[i].touched = (capitalise(form) if capital else form), True
    return True


def _did_with_past(words: Sentence, rng: random.Random) -> bool:
    def fits(i: int, word: Word) -> bool:
        return word.tag == "VB" and any(
            before.low in ("did", "does", "didn") for before in words[max(0, i - 3) : i]
        )

    i = words.pick(rng, fits)
    if i is None:
        return False
    third = any(before.low == "does" for before in words[max(0, i - 3) : i])
    form = _form(words[i].low, "VBZ" if third else "VBD")
    return form is not None and words.substitute(i, form)


def asked_without_do(words: Sentence, rng: random.Random) -> bool:
    """A question whose auxiliary is left out or comes late: "Where you went?", "What you are doing?"."""
    if words[-1].text != "?" or words[0].tag not in _ASKING:
        return False
    for i in range(1, min(4, len(words) - 3)):
        auxiliary = words[i]
        if auxiliary.low not in {*_FINITE_AUXILIARIES, *_DO_FOR.values()} or words[i + 1].tag != "PRP":
            continue
        if auxiliary.low in ("do", "does", "did"):
            words.drop(i)
        else:
            auxiliary.text, words[i + 1].text = words[i + 1].text, auxiliary.low
            if auxiliary.space == "" or words[i + 1].space == "":
                auxiliary.space, words[i + 1].space = " ", " "
        words[0].text = capitalise(words[0].text)
        words[i].touched = True
        return True
    return False


def complement(words: Sentence, rng: random.Random) -> bool:
    """The infinitive for the gerund and the gerund for the infinitive, after verbs that take one of them."""

    def gerund(i: int, word: Word) -> bool:
        return i > 0 and word.tag == "VBG" and _lemma(words[i - 1].low) in _BEFORE_GERUND

    i = words.pick(rng, gerund)
    if i is not None:
        lemma = _lemma(words[i].low)
        return lemma is not None and words.substitute(i, f"to {lemma}" if rng.random() < 0.75 else lemma)
    i = words.pick(
        rng,
        lambda i, word: (
            i > 0
            and word.low == "to"
            and i + 1 < len(words)
            and words[i + 1].tag == "VB"
            and _lemma(words[i - 1].low) in _BEFORE_INFINITIVE
        ),
    )
    if i is None:
        return False
    form = _form(words[i + 1].low, "VBG")
    if form is None or rng.random() < 0.3:
        return words.drop(i)
    words.pop(i)
    return words.substitute(i, form)


def gerund_after_preposition(words: Sentence, rng: random.Random) -> bool:
    """The infinitive where a preposition asks for the gerund: "interested in learn", "forward to hear"."""

    def fits(i: int, word: Word) -> bool:
        if i < 2 or word.tag != "VBG":
            return False
        before = words[i - 1].low
        return before in _GERUND_PREPOSITIONS or (before == "to" and words[i - 2].low in _TO_BEFORE_GERUND)

    i = words.pick(rng, fits)
    lemma = None if i is None else _lemma(words[i].low)
    if i is None or lemma is None:
        return False
    return words.substitute(i, f"to {lemma}" if words[i - 1].low != "to" and rng.random() < 0.3 else lemma)


def subject_twice(words: Sentence, rng: random.Random) -> bool:
    """ "My brother he is": a noun and its pronoun, at the start of a sentence."""
    i = words.pick(
        rng, lambda i, word: 0 < i < 4 and word.tag in ("VBZ", "VBP", "VBD") and words[i - 1].tag in ("NN", "NNS")
    )
    if i is None:
        return False
    return words.put(i, "they" if words[i - 1].tag == "NNS" else rng.choice(["it", "he", "she"]))


def _lemma(word: str, part_of_speech: str = "VERB") -> str | None:
    found: tuple[str, ...] = getLemma(word, upos=part_of_speech)
    return found[0] if found else None


def _form(lemma: str, tag: str) -> str | None:
    found: tuple[str, ...] = getInflection(lemma, tag=tag)
    return found[0] if found else None
