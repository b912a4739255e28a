"""What is allowed and what was accepted, each with its reason (`policy.toml`), and what of that is broken."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from scripts.audit.advisories import Advisory
from scripts.audit.licences import LicenceSyntaxError, is_allowed
from scripts.audit.locks import Locked

_FIELDS = {
    "declared": ("name", "version", "licence", "why"),
    "exception": ("name", "licence", "where", "why"),
    "accepted": ("name", "id", "until", "why"),
}
_WHERE = ("tools", "vllm", "everywhere")


class PolicyError(Exception):
    """The policy cannot be used: which part of it, and why."""


@dataclass(frozen=True, slots=True)
class Declared:
    """What somebody has found out who read the licence of a version that does not name it."""

    version: str
    licence: str


@dataclass(frozen=True, slots=True)
class LicenceException:
    """A licence that is not allowed, but is for this distribution, there."""

    licence: str
    where: str

    def covers(self, package: Locked, licence: str) -> bool:
        """Whether this is the licence that was judged, and the package nowhere else."""
        place = {"tools": ("tools",), "vllm": ("vllm",)}.get(self.where, package.sets)
        return licence == self.licence and package.sets == place


@dataclass(frozen=True, slots=True)
class Policy:
    """The whole of it; `accepted` are vulnerabilities by name and identifier, and until when."""

    allowed: frozenset[str]
    declared: Mapping[str, tuple[Declared, ...]]
    exceptions: Mapping[str, tuple[LicenceException, ...]]
    accepted: Mapping[tuple[str, str], date]


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """Something to be mended: which distribution (or entry of the policy), and what is wrong."""

    subject: str
    what: str


def read_policy(path: Path) -> Policy:
    """Read it; raises `PolicyError`."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PolicyError(f"{path}: {error}") from error
    if unknown := content.keys() - {"allowed", *_FIELDS}:
        raise PolicyError(f"{path}: unknown {sorted(unknown)}")
    entries = {kind: _entries(content, kind) for kind in _FIELDS}
    declared: dict[str, tuple[Declared, ...]] = {}
    for entry in entries["declared"]:
        name = entry["name"]
        declared[name] = (*declared.get(name, ()), Declared(entry["version"], entry["licence"]))
    exceptions: dict[str, tuple[LicenceException, ...]] = {}
    for entry in entries["exception"]:
        if entry["where"] not in _WHERE:
            raise PolicyError(
                f"exception of {entry['name']}: where is {entry['where']!r}; expected one of {_WHERE}"
            )
        name = entry["name"]
        exceptions[name] = (*exceptions.get(name, ()), LicenceException(entry["licence"], entry["where"]))
    accepted = {(entry["name"], entry["id"]): entry["until"] for entry in entries["accepted"]}
    if wrong := [key for key, until in accepted.items() if not isinstance(until, date)]:
        raise PolicyError(f"accepted {wrong[0]}: until is no date")
    return Policy(frozenset(content.get("allowed", {})), declared, exceptions, accepted)


def _entries(content: Mapping[str, Any], kind: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = content.get(kind, [])
    for entry in entries:
        if set(entry) != set(_FIELDS[kind]) or not all(entry.values()):
            raise PolicyError(
                f"{kind} {entry.get('name')}: expected {', '.join(_FIELDS[kind])}, none of them empty"
            )
    return entries


def licence_of(package: Locked, said: str | None, policy: Policy) -> str | None:
    """Return what holds for a package: what was found out of this very version, else what it `said` itself."""
    for entry in policy.declared.get(package.name, ()):
        if entry.version == package.version:
            return entry.licence
    return said


def judge_licences(packages: Iterable[tuple[Locked, str | None]], policy: Policy) -> list[Finding]:
    """Return whose licence is unknown or not allowed, and which entries of the policy nobody needs any more."""
    findings = []
    used: set[tuple[str, object]] = set()
    for package, said in packages:
        subject = f"{package.name} {package.version}"
        licence = licence_of(package, said, policy)
        used |= {
            (package.name, entry)
            for entry in policy.declared.get(package.name, ())
            if entry.version == package.version and entry.licence != said
        }
        if licence is None:
            findings.append(Finding(subject, "its licence is unknown"))
            continue
        covering = [one for one in policy.exceptions.get(package.name, ()) if one.covers(package, licence)]
        try:
            allowed = is_allowed(licence, policy.allowed)
        except LicenceSyntaxError as error:
            findings.append(Finding(subject, str(error)))
            continue
        used |= {(package.name, one) for one in covering if not allowed}
        if not allowed and not covering:
            where = ", ".join(package.sets)
            findings.append(Finding(subject, f"{licence} is not allowed ({where})"))
    entries: list[tuple[str, object]] = [
        (name, entry) for of in (policy.declared, policy.exceptions) for name, all_ in of.items() for entry in all_
    ]
    findings += [
        Finding(name, f"nobody needs {entry}: remove it") for name, entry in entries if (name, entry) not in used
    ]
    return sorted(findings)


def judge_advisories(advisories: Sequence[Advisory], policy: Policy, today: date) -> list[Finding]:
    """Return what is known and not accepted, or no longer, and what was accepted and is known no more."""
    findings = []
    used = set()
    for advisory in advisories:
        keys = [(advisory.name, identifier) for identifier in (advisory.id, *advisory.aliases)]
        accepted = [key for key in keys if key in policy.accepted]
        used |= set(accepted)
        subject = f"{advisory.name} {advisory.version}"
        if not accepted:
            findings.append(Finding(subject, f"known as vulnerable: https://osv.dev/{advisory.id}"))
        elif all(policy.accepted[key] < today for key in accepted):
            findings.append(Finding(subject, f"{advisory.id} was accepted until {policy.accepted[accepted[0]]}"))
    gone = policy.accepted.keys() - used
    findings += [
        Finding(name, f"accepted {identifier} is not known any more: remove it") for name, identifier in gone
    ]
    return sorted(findings)
