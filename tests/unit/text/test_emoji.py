"""Emoji that a correction drops come back where they stood."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.text.symbols import keep_emoji
from copydesk.text.whitespace import normalise

EMOJI = ["😀", "👍🏽", "❤️", "🇩🇪", "1️⃣", "👨\u200d👩\u200d👧"]

pieces = st.lists(st.sampled_from(["he", "go", "goes", "now", ".", ",", *EMOJI]), max_size=12)
sentences = pieces.map(" ".join)


@pytest.mark.parametrize(
    ("source", "answer", "kept"),
    [
        ("I has 😀 two brother.", "I have two brothers.", "I have 😀 two brothers."),
        ("I 😀 likes it 🎉!", "I like it 🎉!", "I 😀 like it 🎉!"),
        ("It are nice 😀", "It is nice.", "It is nice. 😀"),
        ("He go 😀🎉 home", "He goes home", "He goes 😀🎉 home"),
        ("😀 he go", "he goes 😀", "he goes 😀"),
        ("It is good 😀 .", "It is good.", "It is good 😀 ."),
        ("A very 😀 nice day", "A nice day", "A 😀 nice day"),
        ("😀😀 Me too", "😀 Me too", "😀😀 Me too"),
        ("😀", "Me", "😀 Me"),
        ("😀he go", "He goes", "😀He goes"),
        ("He go home.", "He goes home.", "He goes home."),
        ("I have 3 (*) apple", "I have apples", "I have apples"),
    ],
)
def test_emoji_stay_beside_the_words_they_stood_beside(source: str, answer: str, kept: str) -> None:
    assert normalise(keep_emoji(source, answer)) == kept


@given(sentences, sentences)
def test_no_emoji_is_lost_and_nothing_else_changes(source: str, answer: str) -> None:
    kept = keep_emoji(source, answer)
    had: Counter[str] = Counter()
    has: Counter[str] = Counter()
    for emoji in EMOJI:
        had[emoji] = max(source.count(emoji), answer.count(emoji))
        has[emoji] = kept.count(emoji)
    assert has == had
    assert letters(kept) == letters(answer)


def letters(text: str) -> str:
    for emoji in EMOJI:
        text = text.replace(emoji, "")
    return "".join(text.split())
