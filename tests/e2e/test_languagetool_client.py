"""The real client of LanguageTool against the real fleet with the real model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import language_tool_python
import pytest

from tests.fixtures.fleet import running_fleet

CORRECTIONS = {
    "She go to school every day.": "She goes to school every day.",
    "He have two brother.": "He has two brothers.",
    "I recieved you're letter yesterday.": "I received your letter yesterday.",
    "The weather is nice today.": "The weather is nice today.",
}


@pytest.fixture(scope="module")
def tool(
    tmp_path_factory: pytest.TempPathFactory, default_model: Path
) -> Iterator[language_tool_python.LanguageTool]:
    directory = tmp_path_factory.mktemp("fleet")
    with (
        running_fleet(directory, "--model", str(default_model), "--pods", "1") as fleet,
        language_tool_python.LanguageTool("en-US", remote_server=fleet.url) as tool,
    ):
        yield tool


def test_a_text_comes_back_corrected(tool: language_tool_python.LanguageTool) -> None:
    text = "👩‍🔬 " + "\n\n".join(CORRECTIONS)
    assert tool.correct(text) == "👩‍🔬 " + "\n\n".join(CORRECTIONS.values())


def test_matches_tell_what_is_wrong_and_where(tool: language_tool_python.LanguageTool) -> None:
    text = "I recieved you're letter yesterday."
    found = {text[match.offset : match.offset + match.error_length]: match for match in tool.check(text)}
    assert {wrong: match.replacements for wrong, match in found.items()} == {
        "recieved": ["received"],
        "you're": ["your"],
    }
    assert found["recieved"].category == "TYPOS"
    assert found["you're"].category == "GRAMMAR"


def test_a_rule_can_be_switched_off(tool: language_tool_python.LanguageTool) -> None:
    tool.disabled_rules = {"COPYDESK_GRAMMAR"}
    try:
        assert tool.correct("I recieved you're letter yesterday.") == "I received you're letter yesterday."
    finally:
        tool.disabled_rules = set()
