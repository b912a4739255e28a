"""Each claim of the threat model names a test that exists, and each test that was written for it is named."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

TOP = Path(__file__).parents[3]
PAGE = TOP / "docs" / "security.md"
PAGES = (PAGE, TOP / "docs" / "certificates.md")

_TEST = re.compile(r"`(test_\w+\.py)::(test_\w+)`")
_LINK = re.compile(r"\]\(([\w./-]*)(?:#([\w-]+))?\)")


@cache
def claims() -> tuple[str, ...]:
    """Rows of the tables of what attackers can and cannot do."""
    model = PAGE.read_text().partition("\n## What attackers can and cannot do\n")[2].partition("\n## ")[0]
    rows = [line for line in model.splitlines() if line.startswith("| ")]
    return tuple(row for row in rows if not row.startswith(("| claim |", "| --- |")))


@cache
def files() -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for path in sorted((TOP / "tests").rglob("test_*.py")):
        found.setdefault(path.name, []).append(path)
    return found


@pytest.mark.parametrize("claim", claims(), ids=lambda row: row.split("|")[1].strip())
def test_a_claim_names_a_test_that_exists(claim: str) -> None:
    named = _TEST.findall(claim)
    assert named, claim
    for file, name in named:
        (path,) = files().get(file, [])
        assert re.search(rf"^(async )?def {name}\(", path.read_text(), re.MULTILINE), f"{file}::{name}"


def test_the_other_tests_that_are_named_exist_too() -> None:
    for file, name in _TEST.findall(PAGE.read_text()):
        (path,) = files()[file]
        assert f"def {name}(" in path.read_text(), f"{file}::{name}"


def test_every_file_of_security_tests_holds_a_claim() -> None:
    named = {file for file, _ in _TEST.findall("\n".join(claims()))}
    assert {path.name for path in (TOP / "tests" / "security").glob("test_*.py")} <= named
    assert len(claims()) > 50


def test_each_attacker_has_claims_and_what_is_true_as_well() -> None:
    model = PAGE.read_text().partition("\n## What attackers can and cannot do\n")[2].partition("\n## ")[0]
    attackers = model.split("\n### ")[1:]
    assert len(attackers) == 7
    for attacker in attackers:
        assert _TEST.search(attacker), attacker
        assert re.search(r"^- ", attacker, re.MULTILINE), f"no residual risk: {attacker}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.name))
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in _LINK.findall(page.read_text()):
        where = page.parent / target if target else page
        assert where.exists(), target
        headings = re.findall(r"^#+ (.+)$", where.read_text(), re.MULTILINE)
        anchors = {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}
        assert not anchor or anchor in anchors, f"{target}#{anchor}"
