"""The real client of LanguageTool against the real fleet with the real model."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import language_tool_python
import pytest

from tests.fixtures.fleet import Fleet, running_fleet

PAGE = Path(__file__).parents[2] / "docs" / "api.md"

CORRECTIONS = {
    "She go to school every day.": "She goes to school every day.",
    "He have two brother.": "He has two brothers.",
    "I recieved you're letter yesterday.": "I received your letter yesterday.",
    "The weather is nice today.": "The weather is nice today.",
}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, default_model: Path) -> Iterator[Fleet]:
    directory = tmp_path_factory.mktemp("fleet")
    with running_fleet(directory, "--model", str(default_model), "--pods", "1") as fleet:
        yield fleet


@pytest.fixture
def tool(fleet: Fleet) -> Iterator[language_tool_python.LanguageTool]:
    with language_tool_python.LanguageTool("en-US", remote_server=fleet.url) as tool:
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
    assert tool.correct("I recieved you're letter yesterday.") == "I received you're letter yesterday."


def section() -> str:
    """What the page about the API says of LanguageTool's."""
    _, _, rest = PAGE.read_text().partition("\n## LanguageTool's API\n")
    return rest.partition("\n## ")[0]


def run(command: str, fleet: Fleet) -> str:
    """Run a command of the page, as printed but for the port."""
    command = command.replace("http://127.0.0.1:8080", fleet.url)
    return subprocess.run(["bash", "-c", command], check=True, capture_output=True, text=True, timeout=60).stdout


def without_date(answer: Any) -> Any:
    assert answer["software"].pop("buildDate")
    return answer


def test_the_commands_of_the_page_work_as_printed(fleet: Fleet) -> None:
    commands = re.findall(r"^\$ (curl (?:.*\\\n)*.*)$", section(), re.MULTILINE)
    answers = [run(command, fleet) for command in commands]
    assert len(answers) == 8
    shown = re.findall(r"```json\n(.*?)```", section(), re.DOTALL)
    assert without_date(json.loads(answers[0])) == without_date(json.loads(shown[0]))
    assert [match["offset"] for match in json.loads(answers[1])["matches"]] == [7]
    assert json.loads(answers[2])["matches"]
    assert {language["longCode"] for language in json.loads(answers[3])} > {"en-US", "en-GB"}
    assert json.loads(answers[4])["software"]["name"] == "Copydesk"
    assert [*answers[5:7]] == ["20000", "OK"]
    assert answers[7] in section()
