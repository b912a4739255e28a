"""Known vulnerabilities of locked versions, from OSV (https://osv.dev) or, where that is not reached, from PyPI.

A database that answers need not be one: a mirror of PyPI may serve its pages without what is known. So each is
first asked for a version that is known to be vulnerable, and is believed only if it knows.
"""

from __future__ import annotations

import http.client
import json
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

OSV = "https://api.osv.dev/v1/querybatch"
PYPI = "https://pypi.org/pypi/{name}/{version}/json"
KNOWN_TO_BE_VULNERABLE = ("jinja2", "2.4.1")  # CVE-2014-1402 among others
TIMEOUT_S = 20.0

_AT_ONCE = 500  # OSV takes a thousand questions at a time

Fetch = Callable[[str, bytes | None], bytes]
"""Gets the answer to a GET, or to a POST of JSON; raises OSError or HTTPException."""
Package = tuple[str, str]
"""Name and version."""


class DatabaseError(Exception):
    """A database was not reached, or did not answer as one: `url` and `reason`."""

    def __init__(self, url: str, reason: str) -> None:
        self.url = url
        self.reason = reason
        super().__init__(f"{url}: {reason}")


@dataclass(frozen=True, slots=True, order=True)
class Advisory:
    """What is known of a version: the identifier under which, and all others of it."""

    name: str
    version: str
    id: str
    aliases: tuple[str, ...] = ()


def fetch(url: str, body: bytes | None) -> bytes:
    """Ask over HTTPS, and wait no longer than `TIMEOUT_S`."""
    request = urllib.request.Request(url, data=body, headers={"Content-Type": "application/json"})  # noqa: S310
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310 - both addresses are constants
        return bytes(answer.read())


def known(packages: Sequence[Package], ask: Fetch) -> tuple[str, list[Advisory]]:
    """Return which database was asked, and what it knows of `packages`.

    Raises:
        DatabaseError: none was reached, or none that knows anything; it names the reasons of all.
    """
    reasons = []
    for name, source in (("OSV", of_osv), ("PyPI", of_pypi)):
        try:
            if not source([KNOWN_TO_BE_VULNERABLE], ask):
                reasons.append(
                    f"{name}: it knows nothing of {' '.join(KNOWN_TO_BE_VULNERABLE)}, which is vulnerable"
                )
                continue
            return name, sorted(source(packages, ask))
        except DatabaseError as error:
            reasons.append(f"{name}: {error}")
    raise DatabaseError("no database of vulnerabilities", "; ".join(reasons))


def of_osv(packages: Sequence[Package], ask: Fetch) -> list[Advisory]:
    """Ask OSV; raises `DatabaseError`."""
    found = []
    for start in range(0, len(packages), _AT_ONCE):
        asked = [(package, "") for package in packages[start : start + _AT_ONCE]]
        while asked:
            results = _osv_answers(asked, ask)
            found += [
                Advisory(*package, str(known["id"]))
                for (package, _), result in zip(asked, results, strict=True)
                for known in result.get("vulns") or ()
            ]
            asked = [
                (package, str(result["next_page_token"]))
                for (package, _), result in zip(asked, results, strict=True)
                if result.get("next_page_token")
            ]
    return found


def of_pypi(packages: Sequence[Package], ask: Fetch) -> list[Advisory]:
    """Ask PyPI, a page a version; raises `DatabaseError`."""
    found = []
    for name, version in packages:
        url = PYPI.format(name=name, version=version)
        page = _answer(url, None, ask)
        entries = page.get("vulnerabilities")
        if not isinstance(entries, list):
            raise DatabaseError(url, "its answer says nothing of vulnerabilities")
        found += [
            Advisory(name, version, str(entry["id"]), tuple(map(str, entry.get("aliases") or ())))
            for entry in entries
            if not entry.get("withdrawn")
        ]
    return found


def _osv_answers(asked: Sequence[tuple[Package, str]], ask: Fetch) -> list[dict[str, Any]]:
    queries = [
        {"package": {"name": name, "ecosystem": "PyPI"}, "version": version}
        | ({"page_token": page} if page else {})
        for (name, version), page in asked
    ]
    results = _answer(OSV, json.dumps({"queries": queries}).encode(), ask).get("results")
    if not isinstance(results, list) or len(results) != len(queries):
        raise DatabaseError(OSV, f"expected {len(queries)} results")
    return [result or {} for result in results]


def _answer(url: str, body: bytes | None, ask: Fetch) -> dict[str, Any]:
    try:
        answer = json.loads(ask(url, body))
    except (OSError, http.client.HTTPException) as error:
        raise DatabaseError(url, str(error) or type(error).__name__) from error
    except ValueError as error:
        raise DatabaseError(url, f"its answer is no JSON: {error}") from error
    if not isinstance(answer, dict):
        raise DatabaseError(url, "its answer is no JSON object")
    return answer
