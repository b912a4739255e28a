"""Clean English sentences out of the clones: `sentences.tsv`, a line an origin, a tab and a sentence.

One in fifty goes to `held_out.tsv` instead, by a hash of the sentence, for evaluation.

The licence of every origin at the revision that is read is in DATA.md; `everyday` and `set-phrase` are our own.
"""

from __future__ import annotations

import argparse
import html
import random
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from recipe import everyday, sources
from recipe.sources import Snapshot

_GUM_GENRES = ("academic", "bio", "court", "interview", "news", "voyage")
"""The parts of GUM under CC BY and CC BY-SA; the others are non-commercial."""

_EVERYDAY, _EVERYDAY_SEED = 9000, 5
"""How many sentences are composed, and what they are drawn by."""

_ABBREVIATION = re.compile(
    r"(?:\b(?:Mr|Mrs|Ms|Dr|Prof|Sr|Jr|St|vs|etc|e\.g|i\.e|U\.S|U\.K|No|Inc|Co|Gen|Sen|Rep|Gov|Fig|al|cf|approx)"
    r"|\b[A-Z])\.$"
)
_SENTENCE_END = re.compile(r"[.!?][\"')\]]*\s+(?=[\"'(\[]?[A-Z0-9])")
_BAD = re.compile(
    r"https?:|www\.|Figure|Table \d|Chapter \d|Section \d|\(\d|\d{4}[a-z]?\)|\[|\]|[{}<>=|_\\^~#@*]|\bp\. ?\d"
    r"|et al|Image credit|attribution|License|OpenStax|&|;.*;|\.\.\.|\s[-/]\s"
)
_PLAIN = {
    "\u2019": "'",
    "\u2018": "'",
    "\u201c": '"',
    "\u201d": '"',
    "\u00a0": " ",
    "\u2026": "...",
    "\u200b": "",
}
_ALLOWED_BEYOND_LATIN = "\u2014\u2013\u20ac"


def split_sentences(paragraph: str) -> list[str]:
    """Cut after sentence marks that are followed by a capital, but not after abbreviations."""
    sentences, start = [], 0
    for match in _SENTENCE_END.finditer(paragraph):
        mark = match.start()
        if paragraph[mark] == "." and _ABBREVIATION.search(paragraph[start : mark + 1]):
            continue
        sentences.append(paragraph[start : match.end()].rstrip())
        start = match.end()
    return [*sentences, paragraph[start:].strip()]


def straighten(text: str) -> str:
    """Typewriter quotes, and single spaces."""
    for fancy, plain in _PLAIN.items():
        text = text.replace(fancy, plain)
    return re.sub(r"\s+", " ", text).strip()


def is_good(sentence: str, least: int = 5, most: int = 42, *, letters: float = 0.93) -> bool:
    """Whether it is a whole sentence of that many words, without citations, markup or many names.

    `letters` is the least share of letters and spaces: figures and quotations have fewer.
    """
    words = sentence.split()
    return (
        least <= len(words) <= most
        and len(sentence) <= 260
        and re.match(r"[\"'(]?[A-Z]", sentence) is not None
        and re.search(r"[.!?][\"')]*$", sentence) is not None
        and _BAD.search(sentence) is None
        and _is_plain(sentence, letters)
        and sum(word[0].isupper() for word in words[1:]) <= 0.3 * len(words)
    )


def _is_plain(sentence: str, least: float) -> bool:
    balanced = sentence.count('"') % 2 == 0 and sentence.count("(") == sentence.count(")")
    letters = sum(letter.isalpha() or letter.isspace() for letter in sentence) / len(sentence)
    latin = all(ord(letter) <= 0x24F or letter in _ALLOWED_BEYOND_LATIN for letter in sentence)
    return balanced and letters >= least and latin


def openstax(book: Snapshot) -> Iterator[str]:
    """The sentences of a textbook's paragraphs, without citations and references to figures."""
    content = book.read_all([path for path in book.paths() if path.endswith(".cnxml")])
    content = re.sub(r"<metadata.*?</metadata>", " ", content, flags=re.DOTALL)
    for match in re.finditer(r"<para\b[^>]*>(.*?)</para>", content, flags=re.DOTALL):
        for sentence in split_sentences(_paragraph_text(match[1])):
            if is_good(sentence, 6, letters=0.85):
                yield sentence


def _paragraph_text(markup: str) -> str:
    inner = r"<(note|list|footnote|media|figure|equation|m:math|table|link[^>]*/)[^>]*>.*?</\1>"
    markup = re.sub(inner, " ", markup, flags=re.DOTALL)
    markup = re.sub(r"<link[^>]*/>", " Figure ", markup)
    text = straighten(html.unescape(re.sub(r"<[^>]+>", "", markup)))
    return re.sub(r"\s*\((?:[^()]*\d{4}[^()]*|[^()]*Figure[^()]*)\)", "", text)


def gum(treebank: Snapshot) -> Iterator[str]:
    """The sentences of the free genres."""
    for path in treebank.paths():
        free = any(f"GUM_{genre}_" in path for genre in _GUM_GENRES)
        if not free or "/sources/" not in path or not path.endswith(".conllu"):
            continue
        for text in re.findall(r"^# text = (.*)$", treebank.read(path), flags=re.MULTILINE):
            sentence = straighten(text)
            if is_good(sentence, letters=0.85):
                yield sentence


def tatoeba(lists: Snapshot) -> Iterator[str]:
    """The English sides of a list of translated sentences."""
    seen = set()
    for line in lists.read("cmn.txt").split("\n"):
        sentence = straighten(line.split("\t")[0].lstrip("\ufeff"))
        if sentence not in seen and is_good(sentence, 1, letters=0.8):
            seen.add(sentence)
            yield sentence


def rust_book(book: Snapshot) -> Iterator[str]:
    """Technical prose, with names of programs in backticks; no code."""
    for path in book.paths():
        if re.fullmatch(r"src/ch\d.*\.md", path):
            text = re.sub(
                r"```.*?```|<[^>]*>|\[([^\]]*)\](\[[^\]]*\]|\([^)]*\))", r"\1", book.read(path), flags=re.DOTALL
            )
            for paragraph in re.split(r"\n\s*\n", text):
                for sentence in split_sentences(straighten(paragraph)):
                    if is_good(sentence, 5, letters=0.85):
                        yield sentence


def novel(edition: Snapshot) -> Iterator[str]:
    """The sentences of a novel, its dialogue among them, one mark of quotation at the most left out."""
    for path in edition.paths():
        if re.fullmatch(r"src/epub/text/chapter-.*\.xhtml", path):
            for match in re.finditer(r"<p\b[^>]*>(.*?)</p>", edition.read(path), flags=re.DOTALL):
                text = straighten(
                    html.unescape(re.sub(r"<[^>]+>", "", match[1])).replace("\ufeff", "").replace("\u2060", "")
                )
                for sentence in split_sentences(text):
                    whole = _close_quotation(sentence)
                    if is_good(whole, 4, 36, letters=0.85):
                        yield whole


def _close_quotation(sentence: str) -> str:
    """A sentence out of a longer speech has one mark of quotation only; it is dropped."""
    return sentence.replace('"', "") if sentence.count('"') == 1 else sentence


def is_held_out(sentence: str) -> bool:
    """Whether a sentence is kept for evaluation: the same ones whatever else is read."""
    return zlib.crc32(sentence.encode()) % 50 == 0


def origins(mirror: Path) -> Iterator[tuple[str, Iterator[str]]]:
    """Each origin's name and sentences."""
    for name, revision in sources.OPENSTAX:
        yield name.split("+")[1], openstax(Snapshot(mirror, name, revision))
    yield "gum", gum(Snapshot(mirror, *sources.GUM))
    yield "rust-book", rust_book(Snapshot(mirror, *sources.RUST_BOOK))
    for name, revision in sources.NOVELS:
        yield "novel", novel(Snapshot(mirror, name, revision))
    yield "set-phrase", iter(everyday.set_phrases())
    yield "everyday", everyday.everyday(random.Random(_EVERYDAY_SEED), _EVERYDAY)
    yield "tatoeba", tatoeba(Snapshot(mirror, *sources.TATOEBA))


def main() -> None:
    """Write each sentence once, under the first origin that has it."""
    parser = argparse.ArgumentParser(description=__doc__)
    sources.add_mirror_argument(parser)
    parser.add_argument("--out", type=Path, default=Path("sentences.tsv"))
    parser.add_argument("--held-out", type=Path, default=Path("held_out.tsv"))
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    seen: set[str] = set()
    counts: Counter[str] = Counter()
    with arguments.out.open("w", encoding="utf-8") as kept, arguments.held_out.open("w", encoding="utf-8") as held:
        for origin, sentences in origins(arguments.mirror):
            fresh = [sentence for sentence in sentences if sentence not in seen]
            rng.shuffle(fresh)
            for sentence in dict.fromkeys(fresh):
                seen.add(sentence)
                counts[origin] += 1
                (held if is_held_out(sentence) else kept).write(f"{origin}\t{sentence}\n")
    print(dict(counts), counts.total())


if __name__ == "__main__":
    main()
