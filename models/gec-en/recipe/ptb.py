"""Between plain text, which the model reads, and Penn Treebank tokens, which JFLEG is written in."""

from __future__ import annotations

import re


def to_plain(tokens: str) -> str:
    """Join tokens to text: marks to the word before, double quotes by pairs."""
    text = f" {tokens.strip()} "
    text = re.sub(r" ([.,!?;:%)\]]+)(?= )", r"\1", text)
    text = re.sub(r" (n't|'s|'re|'ve|'ll|'m|'d|')(?= )", r"\1", text, flags=re.IGNORECASE)
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


def _pair_quotes(text: str) -> str:
    parts, is_open = [], False
    for part in re.split(r'( " )', text):
        if part != ' " ':
            parts.append(part)
            continue
        parts.append('" ' if is_open else ' "')
        is_open = not is_open
    return "".join(parts)
