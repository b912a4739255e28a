"""What is locked for whom, and how the command ends."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.error import URLError

import pytest

from scripts.audit import __main__ as command
from scripts.audit.locks import brought_by, pins, wanted

REQUIRES = {
    "service": ["Lib_One>=1", "windows-only; sys_platform == 'win32'", "other[fast]"],
    "other": ["slow", 'quick; extra == "fast"', 'unwanted; extra == "tests"'],
    "quick": ["service"],
}


def test_names_are_read_whatever_their_spelling_and_comments_are_not() -> None:
    assert pins("# a\nTyping_Extensions==4.1\nzope.x==2.0.post1\n") == {
        "typing-extensions": "4.1",
        "zope-x": "2.0.post1",
    }
    assert wanted("# a\npytest\nerrant  # types\n\n") == ["pytest", "errant"]


def test_what_is_brought_along_follows_extras_and_markers_in_circles_too() -> None:
    assert brought_by(["service"], REQUIRES) == {"service", "lib-one", "other", "slow", "quick"}


def _unreachable(url: str, body: bytes | None) -> bytes:
    raise URLError("Name or service not known")


def _clean(url: str, body: bytes | None) -> bytes:
    queries = json.loads(body or b"{}")["queries"]
    vulnerable = [
        {"vulns": [{"id": "PYSEC-1"}]} if query["package"]["name"] == "jinja2" else {} for query in queries
    ]
    return json.dumps({"results": vulnerable if len(queries) == 1 else [{}] * len(queries)}).encode()


def test_every_licence_of_what_is_locked_is_known_and_allowed(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--licences"]) == 0, capsys.readouterr().out


@pytest.mark.parametrize(("ask", "code"), [(_unreachable, 3), (_clean, 0)])
def test_a_database_that_is_not_reached_is_told_and_no_pass(
    ask: object, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "fetch", ask)
    assert command.main([]) == code
    told = "KNOWN VULNERABILITIES WERE NOT LOOKED FOR" in capsys.readouterr().err
    assert told is (code == 3)


def test_the_report_is_there_as_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(command, "fetch", _unreachable)
    command.main(["--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["exit_code"] == 3
    assert report["vulnerabilities"] is None
    assert report["packages"] > 150
    assert "api.osv.dev" in report["not_reached"]


def test_a_policy_that_allows_nothing_leaves_nothing_unsaid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "policy.toml").write_text("[allowed]\nMIT = 'permissive'\n")
    assert command.main(["--licences", "--policy", str(tmp_path / "policy.toml")]) == 1
    out = capsys.readouterr().out
    assert "torch 2.13.0: " in out
    assert "promql-parser 0.12.0: its licence is unknown" in out


def test_a_policy_that_is_none_ends_it_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--licences", "--policy", str(tmp_path / "nowhere")]) == 2
    assert "nowhere" in capsys.readouterr().err
