"""Which licence a distribution has by what it says, and whether it may be there."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.audit.licences import LicenceSyntaxError, declared, is_allowed
from scripts.audit.locks import Locked
from scripts.audit.policy import Declared, LicenceException, Policy, PolicyError, judge_licences, read_policy

ALLOWED = frozenset({"MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"})
GPL = "GPL-3.0-only"


def policy(
    declared: dict[str, tuple[Declared, ...]] | None = None,
    exceptions: dict[str, tuple[LicenceException, ...]] | None = None,
) -> Policy:
    return Policy(ALLOWED, declared or {}, exceptions or {}, {})


def judged(licence: str | None, policy: Policy, *sets: str) -> list[str]:
    return [
        finding.what for finding in judge_licences([(Locked("it", "1", sets or ("gateway",)), licence)], policy)
    ]


@pytest.mark.parametrize(
    ("expression", "field", "classifiers", "licence"),
    [
        ("MIT OR GPL-3.0-only", "Apache", ["License :: OSI Approved :: BSD License"], "MIT OR GPL-3.0-only"),
        (None, "Apache 2.0", [], "Apache-2.0"),
        (None, "MIT OR Apache-2.0", ["License :: OSI Approved :: MIT License"], "MIT OR Apache-2.0"),
        (None, "Copyright (c) 2005", ["License :: OSI Approved :: BSD License"], "BSD-3-Clause"),
        (None, None, ["License :: DFSG approved", "License :: OSI Approved :: MIT License"], "MIT"),
        (
            None,
            None,
            ["License :: OSI Approved :: MIT License", "License :: OSI Approved :: Apache Software License"],
            "Apache-2.0 AND MIT",
        ),
        (None, None, ["License :: OSI Approved :: MIT License", "License :: Other/Proprietary License"], None),
        (None, "see the file", ["Programming Language :: Python"], None),
        (None, None, [], None),
    ],
)
def test_a_licence_is_what_is_said_most_reliably(
    expression: str | None, field: str | None, classifiers: list[str], licence: str | None
) -> None:
    assert declared(expression, field, classifiers) == licence


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True),
        (GPL, False),
        ("MIT OR GPL-3.0-only", True),
        ("MIT AND GPL-3.0-only", False),
        ("GPL-3.0-only OR MIT AND Apache-2.0", True),
        ("(GPL-3.0-only OR MIT) AND Apache-2.0", True),
        ("(GPL-3.0-only OR MIT) AND ISC", False),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("MIT WITH LLVM-exception", False),
    ],
)
def test_of_a_choice_one_is_enough_and_of_several_all_are_needed(expression: str, allowed: bool) -> None:
    assert is_allowed(expression, ALLOWED) is allowed


@pytest.mark.parametrize("text", ["", "MIT OR", "(MIT", "MIT Apache-2.0", "AND", "MIT)", "MIT WITH"])
def test_what_is_no_expression_is_told(text: str) -> None:
    with pytest.raises(LicenceSyntaxError, match="no licence expression"):
        is_allowed(text, ALLOWED)


def test_an_unknown_licence_is_a_finding_and_so_is_one_that_is_not_allowed() -> None:
    assert judged("MIT", policy()) == []
    assert judged(None, policy()) == ["its licence is unknown"]
    assert judged(GPL, policy()) == ["GPL-3.0-only is not allowed (gateway)"]
    assert judged("MIT OR", policy()) == ["'MIT OR' is no licence expression: a licence is missing"]


def test_what_was_found_out_holds_for_that_version_alone() -> None:
    assert judged(None, policy({"it": (Declared("1", "MIT"),)})) == []
    unknown, unneeded = sorted(judged(None, policy({"it": (Declared("2", "MIT"),)})))
    assert unknown == "its licence is unknown"
    assert unneeded.startswith("nobody needs Declared")


def test_an_exception_for_tools_ends_where_a_service_brings_it_along() -> None:
    excepted = policy(exceptions={"it": (LicenceException(GPL, "tools"),)})
    assert judged(GPL, excepted, "tools") == []
    assert "GPL-3.0-only is not allowed (gateway)" in judged(GPL, excepted, "gateway")
    assert "AGPL-3.0-only is not allowed (tools)" in judged("AGPL-3.0-only", excepted, "tools")


def test_an_exception_that_nobody_needs_is_a_finding() -> None:
    (finding,) = judged("MIT", policy(exceptions={"it": (LicenceException("MIT", "everywhere"),)}))
    assert "remove it" in finding


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[[exception]]\nname = 'x'\nlicence = 'MIT'\nwhere = 'tools'", "expected name, licence, where, why"),
        ("[[exception]]\nname = 'x'\nlicence = 'MIT'\nwhere = 'tools'\nwhy = ''", "none of them empty"),
        ("[[exception]]\nname = 'x'\nlicence = 'MIT'\nwhere = 'moon'\nwhy = 'y'", "where is 'moon'"),
        ("[[accepted]]\nname = 'x'\nid = 'CVE'\nuntil = 'ever'\nwhy = 'y'", "until is no date"),
        ("[alowed]\nMIT = 'y'", "unknown \\['alowed'\\]"),
        ("[", "policy.toml"),
    ],
)
def test_a_policy_without_reasons_or_with_slips_is_refused(content: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(content)
    with pytest.raises(PolicyError, match=words):
        read_policy(tmp_path / "policy.toml")
