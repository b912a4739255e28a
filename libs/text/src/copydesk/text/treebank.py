"""Between plain text, which models read, and Penn Treebank tokens, which corpora of corrections are written in.

Published scores of corrections are over such tokens. A corpus in tokens is joined for the model, and its answers
are cut again; plain text is cut for the scores alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_SPACED_MARK = re.compile(r"\S (?:[.,!?;:)]|n't|'s|'re|'ve|'ll|'m|'d)(?= |$)", re.IGNORECASE)
_JOINED_MARK = re.compile(r"\w(?:[.,!?;:]|n't|'s|'re|'ve|'ll|'m|'d)(?= |$)", re.IGNORECASE)


def to_plain(tokens: str) -> str:
    """Join tokens to text: marks to the word before, double quotes by pairs."""
    text = f" {tokens.strip()} "
    text = re.sub(r" (n't|'s|'re|'ve|'ll|'m|'d|')(?= )", r"\1", text, flags=re.IGNORECASE)
    text = re.sub(r" ([.,!?;:%)\]]+)(?= )", r"\1", text)  # after these, which a mark would hide
    text = re.sub(r"([(\[$]) ", r"\1", text)
    text = re.sub(r" (``|'') ", ' " ', text)
    text = re.sub(r" / ", "/", _pair_quotes(text))
    return re.sub(r"\s+", " ", text).strip()


def to_tokens(text: str) -> str:
    """Cut text into tokens, with a space between them."""
    text = text.replace("\u2019", "'").replace("\u201c", '"').replace("\u201d", '"')
    text = re.sub(r"\.\.\.", " ... ", text)
    text = re.sub(r"([,;:!?()\[\]\"%&])(?!\d{3}\b)", r" \1 ", text)
    text = re.sub(r"(?<=\d) , (?=\d{3}\b)", ",", text)
    text = re.sub(r"/", " / ", text)
    text = re.sub(r"(?<!\.)(?<! )\.(?=\s|$|[\"')])", " . ", text)
    text = re.sub(r"(\w)(n't)\b", r"\1 \2", text, flags=re.IGNORECASE)
    text = re.sub(r"(\w)('s|'re|'ve|'ll|'m|'d)\b", r"\1 \2", text, flags=re.IGNORECASE)
    text = re.sub(r"(\w)'(?= |$)", r"\1 '", text)
    text = re.sub(r"\b(can)(not)\b", r"\1 \2", text, flags=re.IGNORECASE)
    return re.sub(r"\s+", " ", text).strip()


def looks_tokenised(lines: Iterable[str]) -> bool:
    """Say whether most marks that end words, over all lines, stand apart from them, as in " ." and " n't"."""
    apart = joined = 0
    for line in lines:
        apart += len(_SPACED_MARK.findall(line))
        joined += len(_JOINED_MARK.findall(line))
    return apart > joined


def _pair_quotes(text: str) -> str:
    parts, is_open = [], False
    for part in re.split(r'( " )', text):
        if part != ' " ':
            parts.append(part)
            continue
        parts.append('" ' if is_open else ' "')
        is_open = not is_open
    return "".join(parts)
