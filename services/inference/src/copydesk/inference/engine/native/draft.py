"""What to draft next: guesses at the tokens that follow, which one pass of the model then verifies.

A correction mostly repeats its source, so the source itself is the guess, and after each edit it is taken up
again where the answer goes on (Sun et al., "Instantaneous Grammatical Error Correction with Shallow Aggressive
Decoding", ACL 2021). Without a source, what followed the same tokens earlier is the guess (Yang et al., "Inference
with Reference", arXiv 2304.04487). A guess costs time when it is wrong, but never changes an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

_FIRST_WINDOW = 4  # after an edit: its neighbourhood is where the next one is likeliest
_SUFFIXES = ((2, 12), (1, 4))  # tokens to find again, and how far off: fewer are found by chance sooner
_LOOK_BACK = 512  # tokens of history searched, which bounds the time of a look-up
_SHORTEST_ECHO, _LONGEST_ECHO = 2, 4  # tokens that must have come up before, and up to how many more are better


@dataclass(frozen=True, slots=True)
class Course:
    """Where drafts come from next: `position` in the source, and `window`, how many tokens are worth a try."""

    position: int
    window: int


def outset(source: list[int]) -> Course:
    """Begin with the whole source, since many sentences need no correction; without one, begin short."""
    return Course(position=0, window=max(len(source), _FIRST_WINDOW))


def from_source(source: list[int], position: int, count: int) -> list[int]:
    """The next `count` tokens of the source, or as many as there are."""
    return source[position : position + count]


def from_history(history: list[int], count: int) -> list[int]:
    """The `count` tokens that followed when the last ones of `history` last came up, or as many as there are."""
    start = _after_echo(history)
    return history[start : start + count]


def usable(draft: Sequence[int], stop_ids: Sequence[int], vocabulary: int) -> list[int]:
    """The draft up to what cannot be fed or would end the answer: a stop token needs nothing fed after it."""
    return list(takewhile(lambda token: 0 <= token < vocabulary and token not in stop_ids, draft))


def agreement(draft: Sequence[int], sampled: Sequence[int]) -> int:
    """How many tokens of the draft are what the model chose in their place; later choices build on a wrong one."""
    for place, token in enumerate(draft):
        if token != sampled[place]:
            return place
    return len(draft)


def proceed(course: Course, source: list[int], answer: list[int], *, drafted: int, accepted: int) -> Course:
    """The course after a pass that accepted that many drafted tokens and chose one more, the answer's last."""
    near = course.position + accepted
    return Course(position=_realigned(source, answer, near), window=_next_window(course.window, drafted, accepted))


def _next_window(window: int, drafted: int, accepted: int) -> int:
    """Double while all is accepted; start short after an edit, and shorter still where nothing was right."""
    if accepted == drafted:
        return max(window, 2 * drafted)
    return min(_FIRST_WINDOW, max(1, accepted, drafted // 2))


def _realigned(source: list[int], answer: list[int], near: int) -> int:
    """The place in the source after the answer's last tokens, found around `near`; else after a substitution."""
    if not source:
        return 0
    for length, reach in _SUFFIXES:
        suffix = answer[-length:]
        if len(suffix) < length:
            continue
        for distance in range(reach):
            for end in (near + distance + 1, near - distance + 1):
                if end >= length and source[end - length : end] == suffix:
                    return end
    return min(near + 1, len(source))


def _after_echo(history: list[int]) -> int:
    """The place after the latest of the longest repetitions of the last tokens; the end where there is none."""
    best, longest = len(history), _SHORTEST_ECHO - 1
    place = max(0, len(history) - _LOOK_BACK)
    while True:
        try:
            place = history.index(history[-1], place, len(history) - 1) + 1
        except ValueError:
            return best
        length = _common_suffix(history, place)
        if length >= max(longest, _SHORTEST_ECHO):
            best, longest = place, length


def _common_suffix(history: list[int], end: int) -> int:
    """How many tokens before `end` are also the last of all, up to the longest that counts."""
    length = 1
    while length < min(_LONGEST_ECHO, end) and history[end - 1 - length] == history[-1 - length]:
        length += 1
    return length
