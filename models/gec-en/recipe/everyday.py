"""Short sentences of everyday life, composed of the phrases in `everyday.toml`: what people write most."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from lemminflect import getInflection

from recipe.sentence import capitalise

_POSSESSIVES = {"I": "my", "you": "your", "he": "his", "she": "her", "it": "its", "we": "our", "they": "their"}
_HERS = ("mother", "sister", "wife", "girl", "woman", "Anna")
_HIS = ("brother", "father", "husband", "son", "boy", "man", "Peter")


@cache
def _phrases() -> Mapping[str, Sequence[str]]:
    return tomllib.loads(Path(__file__).with_name("everyday.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Subject:
    """Who a sentence is about, and whether its verb takes an -s."""

    text: str
    third: bool

    @classmethod
    def draw(cls, rng: random.Random) -> Subject:
        """Any of them, one as often as many."""
        third = rng.random() < 0.55
        return cls(rng.choice(_phrases()["third_singular" if third else "others"]), third)

    @property
    def possessive(self) -> str:
        """ "My", "his" and so on, as it refers back to the subject."""
        last = self.text.split()[-1]
        if self.text in _POSSESSIVES:
            return _POSSESSIVES[self.text]
        if self.text.endswith("and I"):
            return "our"
        if not self.third:
            return "their"
        return "his" if last in _HIS else "her" if last in _HERS else "their" if last.endswith("body") else "the"

    def be(self, *, past: bool = False) -> str:
        """The form of "to be" that agrees."""
        if past:
            return "was" if self.third or self.text == "I" else "were"
        return "is" if self.third else "am" if self.text == "I" else "are"

    def verb(self, lemma: str) -> str:
        """The simple present that agrees."""
        return _form(lemma, "VBZ") if self.third else lemma


@cache
def _form(lemma: str, tag: str) -> str:
    irregular = {("have", "VBZ"): "has", ("do", "VBZ"): "does", ("go", "VBZ"): "goes"}
    found: tuple[str, ...] = getInflection(lemma, tag=tag)
    return irregular.get((lemma, tag)) or found[0]


def _action(subject: Subject, rng: random.Random) -> tuple[str, str]:
    verb, _, rest = rng.choice(_phrases()["actions"]).replace("{their}", subject.possessive).partition(" ")
    return verb, rest


def _joined(*parts: str, mark: str = ".") -> str:
    return capitalise(" ".join(part for part in parts if part)) + mark


def _habit(subject: Subject, rng: random.Random) -> str:
    verb, rest = _action(subject, rng)
    return _joined(subject.text, subject.verb(verb), rest, rng.choice(_phrases()["habits"]))


def _not(subject: Subject, rng: random.Random) -> str:
    verb, rest = _action(subject, rng)
    past = rng.random() < 0.3
    auxiliary = "didn't" if past else "doesn't" if subject.third else "don't"
    return _joined(subject.text, auxiliary, verb, rest, rng.choice(_phrases()["pasts"]) if past else "")


def _past(subject: Subject, rng: random.Random) -> str:
    verb, rest = _action(subject, rng)
    return _joined(subject.text, _form(verb, "VBD"), rest, rng.choice(_phrases()["pasts"]))


def _going_on(subject: Subject, rng: random.Random) -> str:
    verb, rest = _action(subject, rng)
    if verb in _phrases()["states"]:
        return _past(subject, rng)
    return _joined(subject.text, subject.be(), _form(verb, "VBG"), rest, rng.choice(["", "", "now", "today"]))


def _future(subject: Subject, rng: random.Random) -> str:
    verb, rest = _action(subject, rng)
    modal = rng.choice(["will", "will", "can", "should", "must", "might", "could", "won't", "can't"])
    return _joined(subject.text, modal, verb, rest, rng.choice(_phrases()["futures"]))


def _being(subject: Subject, rng: random.Random) -> str:
    past = rng.random() < 0.4
    plain = rng.random() < 0.7 or not (subject.third or subject.text == "I")
    what = rng.choice(_phrases()["qualities" if plain else "professions"])
    return _joined(subject.text, subject.be(past=past), what, rng.choice(_phrases()["pasts"]) if past else "")


def _gerund(subject: Subject, rng: random.Random) -> str:
    verb, rest = _action(subject, rng)
    if rng.random() < 0.5:
        return _joined(
            subject.text, subject.be(), rng.choice(_phrases()["be_before_gerund"]), _form(verb, "VBG"), rest
        )
    first, _, more = rng.choice(_phrases()["before_gerund"]).partition(" ")
    return _joined(subject.text, subject.verb(first), more, _form(verb, "VBG"), rest)


def _infinitive(subject: Subject, rng: random.Random) -> str:
    verb, rest = _action(subject, rng)
    first = rng.choice(_phrases()["before_infinitive"])
    if rng.random() < 0.25:
        return _joined(subject.text, "used to", verb, rest)
    return _joined(subject.text, subject.verb(first), "to", verb, rest)


def _question(subject: Subject, rng: random.Random) -> str:
    verb, rest = _action(subject, rng)
    asking = rng.choice(["", "", "", "why", "when", "where", "how often"])
    if asking and rest and asking == "where":
        asking = "why"
    past = rng.random() < 0.4
    return _joined(
        asking, "did" if past else "does" if subject.third else "do", subject.text, verb, rest, mark="?"
    )


_PATTERNS: list[tuple[Callable[[Subject, random.Random], str], int]] = [
    (_habit, 22),
    (_not, 10),
    (_past, 16),
    (_going_on, 8),
    (_future, 6),
    (_being, 14),
    (_gerund, 12),
    (_infinitive, 6),
    (_question, 7),
]


def everyday(rng: random.Random, count: int) -> Iterator[str]:
    """So many sentences, some of them alike."""
    patterns, weights = zip(*_PATTERNS, strict=True)
    for pattern in rng.choices(patterns, weights, k=count):
        yield pattern(Subject.draw(rng), rng)


def set_phrases() -> Sequence[str]:
    """Sentences that are said over and over, and those in which little words that sound alike are mixed up."""
    return _phrases()["whole"]
