"""Known vulnerabilities: what databases answer, when they are believed, and what was accepted."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import date
from typing import Any
from urllib.error import HTTPError, URLError

import pytest

from scripts.audit.advisories import OSV, Advisory, DatabaseError, known, of_osv
from scripts.audit.policy import Policy, judge_advisories

PACKAGES = [("safe", "1.0"), ("torn", "2.0")]
TODAY = date(2026, 12, 1)


def osv(page_tokens: bool = False) -> Callable[[str, bytes | None], bytes]:
    """OSV as it answers, of which some give their second identifier on a second page."""

    def ask(url: str, body: bytes | None) -> bytes:
        assert url == OSV
        assert body is not None
        results: list[dict[str, Any]] = []
        for query in json.loads(body)["queries"]:
            if query["package"]["name"] == "safe":
                results.append({})
            elif page_tokens and "page_token" not in query:
                results.append({"vulns": [{"id": "GHSA-1"}], "next_page_token": "more"})
            else:
                results.append({"vulns": [{"id": "GHSA-2" if page_tokens else "GHSA-1"}]})
        return json.dumps({"results": results}).encode()

    return ask


def pypi(url: str, body: bytes | None) -> bytes:
    """PyPI alone, as if OSV were not reached."""
    if url == OSV:
        raise URLError("Name or service not known")
    if "/safe/" in url:
        return b'{"info": {}, "vulnerabilities": []}'
    withdrawn = {"id": "PYSEC-2", "withdrawn": "2026-01-01T00:00:00Z"}
    return json.dumps({"vulnerabilities": [{"id": "PYSEC-1", "aliases": ["CVE-1"]}, withdrawn]}).encode()


def test_osv_is_asked_for_all_at_once_and_read_to_its_last_page() -> None:
    assert known(PACKAGES, osv()) == ("OSV", [Advisory("torn", "2.0", "GHSA-1")])
    assert [found.id for found in of_osv(PACKAGES, osv(page_tokens=True))] == ["GHSA-1", "GHSA-2"]


def test_pypi_is_asked_where_osv_is_not_reached_and_what_was_withdrawn_is_left_out() -> None:
    assert known(PACKAGES, pypi) == ("PyPI", [Advisory("torn", "2.0", "PYSEC-1", ("CVE-1",))])


def _not_found(url: str, body: bytes | None) -> bytes:
    raise HTTPError(url, 404, "Not Found", {}, io.BytesIO())  # type: ignore[arg-type]


def _knows_nothing(url: str, body: bytes | None) -> bytes:
    if body is None:
        return b'{"vulnerabilities": []}'
    return json.dumps({"results": [{} for _ in json.loads(body)["queries"]]}).encode()


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (_not_found, "404"),
        (_knows_nothing, "knows nothing of jinja2 2.4.1"),
        (lambda url, body: b"<html>", "no JSON"),
        (lambda url, body: b"[]", "no JSON object"),
        (lambda url, body: b"{}", "says nothing of vulnerabilities"),
    ],
    ids=["not found", "a mirror that knows nothing", "a page", "a list", "empty"],
)
def test_what_is_no_database_is_no_pass(ask: Callable[[str, bytes | None], bytes], words: str) -> None:
    with pytest.raises(DatabaseError, match=words) as raised:
        known(PACKAGES, ask)
    assert {"OSV", "PyPI"} <= set(raised.value.reason.replace(":", " ").split())


def judged(accepted: dict[tuple[str, str], date], *advisories: Advisory) -> list[str]:
    return [finding.what for finding in judge_advisories(advisories, Policy(frozenset(), {}, {}, accepted), TODAY)]


def test_what_is_known_is_a_finding_until_it_is_accepted_under_any_of_its_names() -> None:
    advisory = Advisory("torn", "2.0", "PYSEC-1", ("CVE-1",))
    assert judged({}, advisory) == ["known as vulnerable: https://osv.dev/PYSEC-1"]
    assert judged({("torn", "CVE-1"): TODAY}, advisory) == []
    assert judged({("torn", "CVE-1"): date(2026, 11, 30)}, advisory) == ["PYSEC-1 was accepted until 2026-11-30"]


def test_what_was_accepted_for_another_or_is_known_no_more_is_a_finding() -> None:
    found = judged({("other", "PYSEC-1"): TODAY}, Advisory("torn", "2.0", "PYSEC-1"))
    assert "accepted PYSEC-1 is not known any more: remove it" in found
    assert "known as vulnerable: https://osv.dev/PYSEC-1" in found
