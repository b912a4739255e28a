"""Which line ends are soft wraps."""

from __future__ import annotations

import pytest

from copydesk.text.blocks import Block, blocks, is_soft_wrap

LONG = "This line has been wrapped by a mail program that knows its width"


@pytest.mark.parametrize(
    ("line", "following"),
    [
        ("She go to", "school every day."),
        ("I saw it, and", "\u201che\u201d did too."),
        ("- an item that is", "continued below"),
        (LONG, "Mr Smith wrote."),
        (LONG, "12 times over."),
        ("from my house (the old one) to", "the school"),
        ("let me return to the class", "of today"),
        ("it was in the (old", "town) somewhere"),
    ],
)
def test_an_unfinished_line_goes_on_in_the_next(line: str, following: str) -> None:
    assert is_soft_wrap(line, following)


@pytest.mark.parametrize(
    ("line", "following"),
    [
        ("She go home.", "he stay."),
        ("\u201cIs it so?\u201d", "he asked."),
        ("what he said:", "nothing at all"),
        ("Dear John,", "I write you."),
        ("A short title", "The text begins."),
        ("milk", "eggs and bread"),
        ("he go", "- she go"),
        ("he go", "2. she go"),
        ("he go", "a) she go"),
        ("he go", "> she go"),
        ("he go", "note: she go"),
        ("# the title", "the text"),
        ("x = foo();", "bar it"),
        ("import os", "import sys"),
        ("from os import path", "and so on"),
        ("let x = 1", "let y be"),
        ("def go(self):", "pass the time"),
        ("he calls foo()", "bar it"),
        ("he go", "| a | b |"),
        ("he go", "---"),
        ("----- -----", "he go"),
        ("", "he go"),
        ("he go", ""),
        (LONG + " and, being longer than any width in use, was not wrapped", "Mr Smith wrote."),
    ],
)
def test_a_finished_or_separate_line_does_not(line: str, following: str) -> None:
    assert not is_soft_wrap(line, following)


def test_blocks_hold_wrapped_lines_together_and_marks_apart() -> None:
    text = "- he go\n  home now\n\nShe stay.\n"
    assert list(blocks(text)) == [Block(0, 2, 19), Block(20, 20, 30)]
