"""Keep the emoji that a model drops: no correction of grammar takes one out, but small models do."""

from __future__ import annotations

from collections import Counter

import regex

from copydesk.text.diff import edits
from copydesk.text.edit import Edit, apply

_EMOJI = regex.compile(r"(?=[\p{Extended_Pictographic}\p{RI}]|.\ufe0f?\u20e3)\X")
_WORD = regex.compile(r"\w")


def keep_emoji(source: str, answer: str) -> str:
    """Return `answer` with every emoji that `source` has and it lacks, beside the words that it stood beside.

    Both are normalised sentences, one line each. Pictographs such as the trade mark sign count as emoji.
    """
    lost = Counter(_EMOJI.findall(source)) - Counter(_EMOJI.findall(answer))
    if not lost:
        return answer
    return apply(source, [_keeping(source, edit, lost) for edit in edits(source, answer)])


def _keeping(source: str, edit: Edit, lost: Counter[str]) -> Edit:
    """The edit without the loss of emoji in `lost`, from which those are taken that this edit has saved."""
    old = source[edit.start : edit.end]
    saved = []
    for match in _EMOJI.finditer(old):
        if lost[match.group()] > 0:
            lost[match.group()] -= 1
            saved.append(match.span())
    return Edit(edit.start, edit.end, _joined(old, edit.replacement, saved)) if saved else edit


def _joined(old: str, new: str, saved: list[tuple[int, int]]) -> str:
    """Put the emoji of `old` at `saved` before or after `new`, as they stood in `old`, with their spaces."""
    emoji = "".join((" " if old[:start].endswith(" ") else "") + old[start:end] for start, end in saved)
    first, last = saved[0][0], saved[-1][1]
    if not new.strip():
        return _edge(old) + emoji.strip() + _edge(old[::-1])
    if _WORD.search(new) and not _WORD.search(old[:first]):
        return emoji + ("" if old[last:].strip() and not _edge(old[last:]) else " ") + new
    return new + emoji + _edge(old[last:])


def _edge(text: str) -> str:
    return " " if text.startswith(" ") else ""
