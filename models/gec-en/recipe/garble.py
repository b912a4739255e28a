"""Text that is past correction, or not English: it is to be copied, not guessed at."""

from __future__ import annotations

import random
import string
from collections.abc import Callable

_OPENINGS = ("b", "br", "d", "f", "gl", "k", "m", "pl", "r", "s", "st", "t", "v", "z", "xh", "q", "w", "")
_VOWELS = ("a", "e", "i", "o", "u", "oo", "ae", "y")
_ENDINGS = ("", "", "n", "rk", "st", "x", "l", "mp", "zz", "t")
_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")


def mashed(words: list[str], rng: random.Random) -> str:
    """Keys hit at random."""
    made = ["".join(rng.choices(rng.choice(_ROWS), k=rng.randrange(3, 12))) for _ in range(rng.randrange(1, 7))]
    return " ".join(made)


def invented(words: list[str], rng: random.Random) -> str:
    """Words of no language, perhaps with some English ones among them."""
    made = [
        "".join(_syllable(rng) for _ in range(rng.randrange(1, 4))) or "zu" for _ in range(rng.randrange(3, 12))
    ]
    made = [rng.choice(words) if rng.random() < 0.2 else word for word in made]
    return " ".join(made) + rng.choice(["", "", ".", "?", "!"])


def _syllable(rng: random.Random) -> str:
    return rng.choice(_OPENINGS) + rng.choice(_VOWELS) + rng.choice(_ENDINGS)


def shuffled(words: list[str], rng: random.Random) -> str:
    """The words of a sentence in no order."""
    mixed = words[:]
    rng.shuffle(mixed)
    return " ".join(mixed)


def scrambled(words: list[str], rng: random.Random) -> str:
    """Every word with its letters in no order."""
    return " ".join("".join(rng.sample(word, len(word))) for word in words)


def stuck(words: list[str], rng: random.Random) -> str:
    """A word or two again and again."""
    part = words[: rng.randrange(1, 4)]
    return " ".join(part * rng.randrange(4, 12))


def coded(words: list[str], rng: random.Random) -> str:
    """Numbers, addresses, names of files and of parts, keys."""

    def code() -> str:
        letters = string.ascii_letters + string.digits
        word = rng.choice(words).strip(".,!?\"'()").lower() or "item"
        number = rng.randrange(1, 99999)
        return rng.choice(
            [
                "".join(rng.choices(letters, k=rng.randrange(5, 20))),
                f"{word.upper()[:4]}-{number}",
                f"{word}_{number}.txt",
                f"https://{word}.example/{number}?q={word}",
                f"{word}{number % 100}@example.com",
                f"{number % 13}:{number % 60:02d}",
                f"${number / 100:.2f}",
                f"#{number}",
                f"{number % 32}/{number % 12 + 1}/20{number % 30:02d}",
                f"v{number % 9}.{number % 17}.{number % 5}",
                f"({number % 1000}) {number % 997}-{number % 9973}",
                word,
            ]
        )

    return rng.choice(["", "", "Re: ", "Order "]) + " ".join(code() for _ in range(rng.randrange(1, 9)))


_KINDS: list[Callable[[list[str], random.Random], str]] = [
    mashed,
    invented,
    invented,
    shuffled,
    scrambled,
    stuck,
    stuck,
    coded,
    coded,
]


def garble(sentence: str, rng: random.Random) -> str:
    """Something hopeless made of a sentence's words or of nothing."""
    return rng.choice(_KINDS)(sentence.split(), rng)
